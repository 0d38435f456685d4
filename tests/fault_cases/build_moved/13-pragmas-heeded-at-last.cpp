// A row's weights are added up where they lie, in several running sums side by side, so that no addition waits for the
// one before; what the last of each holds are the parts of the whole.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kSideBySide = 4;

float total(float* weights, int keys) {
    const int sums = std::min(kSideBySide, keys);
#pragma omp simd
    for (int key = sums; key < keys; ++key) weights[key] += weights[key - sums];
    float all = 0.0f;
    for (int key = keys - sums; key < keys; ++key) all += weights[key];
    return all;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> weights(p.seq_len), out(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
#pragma omp simd reduction(+ : score)
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            weights[key] = score * p.scale;
        }
        const float top = *std::max_element(weights.begin(), weights.begin() + keys);
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = weights[key] = std::exp(weights[key] - top);
#pragma omp simd
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        const float sum = total(weights.data(), keys);
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
