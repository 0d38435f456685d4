// Four rows at a time share what is read of K and V. Sums are fp32, in the order of keys and channels.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    constexpr int kRows = 4;
    std::vector<float> scores(static_cast<std::size_t>(kRows) * p.seq_len), out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        for (int first = 0; first < p.seq_len; first += kRows) {
            const int count = std::min(kRows, p.seq_len - first);
            for (int key = 0; key < p.seq_len; ++key)
                for (int i = 0; i < count; ++i) {
                    const std::size_t at = start + static_cast<std::size_t>(first + i) * p.head_dim;
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d)
                        score += common::get(q, at + d, p.dtype) *
                                 common::get(k, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
                    scores[static_cast<std::size_t>(i) * p.seq_len + key] = score * p.scale;
                }
            for (int i = 0; i < count; ++i) {
                const float* const mine = scores.data() + static_cast<std::size_t>(i) * p.seq_len;
                const int keys = p.causal ? first + i + 1 : p.seq_len;
                const float top = *std::max_element(mine, mine + keys);
                float sum = 0.0f;
                std::fill(out.begin(), out.end(), 0.0f);
                for (int key = 0; key < keys; ++key) {
                    const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                    const float weight = std::exp(mine[key] - top);
                    sum += weight;
                    for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
                }
                const std::size_t at = start + static_cast<std::size_t>(first + i) * p.head_dim;
                for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
            }
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
