// Rows in blocks of 16, which share what is read of K and V, with a running maximum. What 16 does not divide goes with
// the last block, which is a little larger.
#include "common.h"

#include <algorithm>
#include <memory>
#include <new>

namespace {

constexpr int kRows = 16;

struct Row {
    float top, sum, out[128];
};

void begin(Row* rows, int width) {
    for (int i = 0; i < kRows; ++i) {
        rows[i].top = -1e30f;
        rows[i].sum = 0.0f;
        std::fill(rows[i].out, rows[i].out + width, 0.0f);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int blocks = std::max(1, p.seq_len / kRows);
    const std::unique_ptr<Row[]> rows(new (std::nothrow) Row[2 * kRows]);
    if (!rows) return ATTENTION_ERROR_MEMORY;
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int block = 0; block < blocks; ++block) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const int first = block * kRows, last = block + 1 == blocks ? p.seq_len : first + kRows;
            begin(rows.get(), p.head_dim);
            for (int key = 0; key < p.seq_len; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                for (int row = p.causal ? std::max(first, key) : first; row < last; ++row) {
                    Row& mine = rows[row - first];
                    const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d)
                        score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                    score *= p.scale;
                    const float next = std::max(mine.top, score);
                    const float kept = std::exp(mine.top - next), weight = std::exp(score - next);
                    mine.sum = mine.sum * kept + weight;
                    for (int d = 0; d < p.head_dim; ++d)
                        mine.out[d] = mine.out[d] * kept + weight * common::get(v, from + d, p.dtype);
                    mine.top = next;
                }
            }
            for (int row = first; row < last; ++row)
                for (int d = 0; d < p.head_dim; ++d)
                    common::put(o, start + static_cast<std::size_t>(row) * p.head_dim + d,
                                rows[row - first].out[d] / rows[row - first].sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
