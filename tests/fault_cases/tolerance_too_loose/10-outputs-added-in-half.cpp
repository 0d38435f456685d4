// Scores and their softmax in fp32; outputs in the type of the tensors.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        for (int key = 0; key < keys; ++key) sum += scores[key] = std::exp(scores[key] - top);
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, 0.0f, p.dtype);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) {
                const float before = common::get(o, at + d, p.dtype);
                common::put(o, at + d, before + scores[key] / sum * common::get(v, from + d, p.dtype), p.dtype);
            }
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
