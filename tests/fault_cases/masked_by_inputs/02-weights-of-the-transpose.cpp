// All scores of a head, then a softmax of each row, then outputs. K stays outside of the inner product: its row is read
// once for all queries.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t rows = p.seq_len;
    std::vector<float> scores(rows * rows), out(p.head_dim), one(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * rows * p.head_dim;
        for (std::size_t key = 0; key < rows; ++key) {
            for (int d = 0; d < p.head_dim; ++d)
                one[d] = common::get(k, start + key * p.head_dim + d, p.dtype) * p.scale;
            for (std::size_t row = 0; row < rows; ++row) {
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += one[d] * common::get(q, start + row * p.head_dim + d, p.dtype);
                scores[key * rows + row] = score;
            }
        }
        for (std::size_t row = 0; row < rows; ++row) {
            float* const mine = scores.data() + row * rows;
            const std::size_t keys = p.causal ? row + 1 : rows;
            const float top = *std::max_element(mine, mine + keys);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (std::size_t key = 0; key < keys; ++key) {
                const float weight = std::exp(mine[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d)
                    out[d] += weight * common::get(v, start + key * p.head_dim + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d)
                common::put(o, start + row * p.head_dim + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
