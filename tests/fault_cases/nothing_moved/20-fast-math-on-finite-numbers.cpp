// Two passes over the keys. A row's scores begin with its own key, so that its maximum is a number from the start, and
// keys that a row does not see are never looked at: nothing in here is infinite.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len);
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            const auto product = [&](int key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                return score * p.scale;
            };
            float top = product(row), sum = 0.0f, out[128] = {};
            for (int key = 0; key < keys; ++key) top = std::max(top, scores[key] = product(key));
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
