// The loops over a row's weights may go side by side, and say so; where one adds up, it says that too.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const int width = p.head_dim;
    std::vector<float> weights(p.seq_len), out(width);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * width;
        const float* const keys = static_cast<const float*>(k) + start;
        const float* const values = static_cast<const float*>(v) + start;
        const float* const query = static_cast<const float*>(q) + static_cast<std::size_t>(row) * width;
        float* const output = static_cast<float*>(o) + static_cast<std::size_t>(row) * width;
        const int seen = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < seen; ++key) {
            float score = 0.0f;
            for (int d = 0; d < width; ++d) score += query[d] * keys[key * width + d];
            weights[key] = score * p.scale;
        }
#pragma omp simd reduction(max : top)
        for (int key = 0; key < seen; ++key) top = std::max(top, weights[key]);
        for (int key = 0; key < seen; ++key) weights[key] = std::exp(weights[key] - top);
#pragma omp simd reduction(+ : sum)
        for (int key = 0; key < seen; ++key) sum += weights[key];
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < seen; ++key)
#pragma omp simd
            for (int d = 0; d < width; ++d) out[d] += weights[key] * values[key * width + d];
#pragma omp simd
        for (int d = 0; d < width; ++d) output[d] = out[d] / sum;
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
