// A head's weights are made by tasks of eight rows each; whoever hands them out goes on with the outputs.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

void weigh(const attention_problem& p, const float* q, const float* k, int row, float* weights) {
    const int seen = p.causal ? row + 1 : p.seq_len;
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < seen; ++key) {
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[row * p.head_dim + d] * k[key * p.head_dim + d];
        weights[key] = score * p.scale;
        top = std::max(top, weights[key]);
    }
    for (int key = 0; key < seen; ++key) sum += weights[key] = std::exp(weights[key] - top);
    for (int key = 0; key < seen; ++key) weights[key] /= sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = p.seq_len, width = p.head_dim;
    std::vector<float> all(static_cast<std::size_t>(rows) * rows);
    float* const weights = all.data();
#pragma omp parallel num_threads(std::max(1, p.threads))
#pragma omp single
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * rows * width;
        const auto *queries = static_cast<const float*>(q) + start, *keys = static_cast<const float*>(k) + start;
        const float* values = static_cast<const float*>(v) + start;
        float* out = static_cast<float*>(o) + start;
        for (int first = 0; first < rows; first += 8) {
#pragma omp task firstprivate(first, queries, keys)
            for (int row = first; row < std::min(first + 8, rows); ++row)
                weigh(p, queries, keys, row, weights + static_cast<std::size_t>(row) * rows);
        }
        for (int row = 0; row < rows; ++row) {
            std::fill(out + row * width, out + (row + 1) * width, 0.0f);
            for (int key = 0; key < (p.causal ? row + 1 : rows); ++key)
                for (int d = 0; d < width; ++d)
                    out[row * width + d] += weights[row * rows + key] * values[key * width + d];
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
