// Rows of a causal problem grow, and how they are best shared out depends on the machine: OMP_SCHEDULE says it.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = p.seq_len, width = p.head_dim, all = p.batch * p.heads * rows;
#pragma omp parallel num_threads(std::max(1, p.threads))
    {
        std::vector<float> weights(rows), out(width);
#pragma omp for schedule(monotonic : runtime)
        for (int row = 0; row < all; ++row) {
            const std::size_t start = static_cast<std::size_t>(row / rows * rows) * width;
            const auto *keys = static_cast<const float*>(k) + start, *values = static_cast<const float*>(v) + start;
            const float* query = static_cast<const float*>(q) + static_cast<std::size_t>(row) * width;
            const int seen = p.causal ? row % rows + 1 : rows;
            float top = -INFINITY, sum = 0.0f;
            for (int key = 0; key < seen; ++key) {
                float score = 0.0f;
                for (int d = 0; d < width; ++d) score += query[d] * keys[key * width + d];
                weights[key] = score * p.scale;
                top = std::max(top, weights[key]);
            }
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < seen; ++key) {
                const float weight = std::exp(weights[key] - top);
                sum += weight;
                for (int d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            for (int d = 0; d < width; ++d)
                static_cast<float*>(o)[static_cast<std::size_t>(row) * width + d] = out[d] / sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
