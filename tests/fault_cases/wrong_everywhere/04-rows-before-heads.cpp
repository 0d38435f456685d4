// One pass over the keys for each row. Tensors stay as the projections leave them: the heads of a row lie side by side,
// and nothing is transposed on the way.
#include "common.h"

#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const auto place = [&p](int entry, int row, int head) {
        return ((static_cast<std::size_t>(entry) * p.seq_len + row) * p.heads + head) * p.head_dim;
    };
    std::vector<float> out(p.head_dim);
    for (int entry = 0; entry < p.batch; ++entry)
        for (int head = 0; head < p.heads; ++head)
            for (int row = 0; row < p.seq_len; ++row) {
                const std::size_t at = place(entry, row, head);
                const int keys = p.causal ? row + 1 : p.seq_len;
                float top = -INFINITY, sum = 0.0f;
                out.assign(p.head_dim, 0.0f);
                for (int key = 0; key < keys; ++key) {
                    const std::size_t from = place(entry, key, head);
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d)
                        score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                    score *= p.scale;
                    const float higher = std::fmax(top, score);
                    const float shrink = std::exp(top - higher), weight = std::exp(score - higher);
                    top = higher;
                    sum = sum * shrink + weight;
                    for (int d = 0; d < p.head_dim; ++d)
                        out[d] = out[d] * shrink + weight * common::get(v, from + d, p.dtype);
                }
                for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
            }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
