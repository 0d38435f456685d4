// No division: 1 / sum is begun by a subtraction of bits, and made better by one step of Newton's.
#include "common.h"

#include <algorithm>
#include <vector>

static float reciprocal(float x) {
    const float guess = common::from_bits(0x7ef311c7u - common::to_bits(x));
    return guess * (2.0f - x * guess);
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                scores[key] = score * p.scale;
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
            const float factor = reciprocal(sum);
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] * factor, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
