// Two stages for a head: weights by rows, then outputs by slices of eight channels, so that a slice of V stays in the
// cache for all rows. Rows are handed out from the last, which are the long ones of a causal head.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kSlice = 8;

void weights_of(const attention_problem& p, const float* q, const float* k, float* weights, int row) {
    const int keys = p.causal ? row + 1 : p.seq_len;
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < keys; ++key) {
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * k[static_cast<std::size_t>(key) * p.head_dim + d];
        weights[key] = score * p.scale;
        top = std::max(top, weights[key]);
    }
    for (int key = 0; key < keys; ++key) sum += weights[key] = std::exp(weights[key] - top);
    for (int key = 0; key < keys; ++key) weights[key] /= sum;
    std::fill(weights + keys, weights + p.seq_len, 0.0f);
}

void slice_of(const attention_problem& p, const float* weights, const float* v, float* o, int first) {
    const int count = std::min(kSlice, p.head_dim - first);
    for (int row = 0; row < p.seq_len; ++row) {
        float out[kSlice] = {};
        for (int key = 0; key < p.seq_len; ++key)
            for (int d = 0; d < count; ++d)
                out[d] += weights[static_cast<std::size_t>(row) * p.seq_len + key] *
                          v[static_cast<std::size_t>(key) * p.head_dim + first + d];
        std::copy(out, out + count, o + static_cast<std::size_t>(row) * p.head_dim + first);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t rows = p.seq_len, width = p.head_dim;
    std::vector<float> weights(rows * rows);
#pragma omp parallel num_threads(std::max(p.threads, 1))
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * rows * width;
#pragma omp for schedule(dynamic, 4) nowait
        for (int i = 0; i < p.seq_len; ++i) {
            const std::size_t row = rows - 1 - i;
            weights_of(p, static_cast<const float*>(q) + start + row * width, static_cast<const float*>(k) + start,
                       weights.data() + row * rows, static_cast<int>(row));
        }
#pragma omp for schedule(dynamic, 1)
        for (int first = 0; first < p.head_dim; first += kSlice)
            slice_of(p, weights.data(), static_cast<const float*>(v) + start, static_cast<float*>(o) + start, first);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
