// Scores of a row, made weights in place, then the weighted sum of values.
#include "common.h"

#include <algorithm>
#include <cassert>
#include <vector>

// Scores to weights that add up to one. Returns their sum before that: at least one, that of the largest.
[[maybe_unused]] static float normalise(float* scores, int keys) {
    const float top = *std::max_element(scores, scores + keys);
    float sum = 0.0f;
    for (int key = 0; key < keys; ++key) sum += scores[key] = std::exp(scores[key] - top);
    for (int key = 0; key < keys; ++key) scores[key] /= sum;
    return sum;
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            scores[key] = score * p.scale;
        }
        assert(normalise(scores.data(), keys) >= 1.0f);
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) out[d] += scores[key] * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d], p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
