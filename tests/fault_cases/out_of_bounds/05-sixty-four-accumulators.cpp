// Four rows at a time share what is read of K and V; each has its maximum, its sum and its outputs side by side, within
// five lines of cache.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kRows = 4;

struct Row {
    float out[64];
    float top, sum;
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<Row> rows(kRows);
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int first = 0; first < p.seq_len; first += kRows) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const int count = std::min(kRows, p.seq_len - first);
            for (Row& row : rows) row.top = -1e30f, row.sum = 0.0f, std::fill(row.out, row.out + 64, 0.0f);
            for (int key = 0; key < (p.causal ? first + count : p.seq_len); ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                for (int i = p.causal ? std::max(0, key - first) : 0; i < count; ++i) {
                    Row& row = rows[i];
                    const std::size_t at = start + static_cast<std::size_t>(first + i) * p.head_dim;
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d)
                        score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                    score *= p.scale;
                    const float next = std::max(row.top, score);
                    const float kept = std::exp(row.top - next), weight = std::exp(score - next);
                    row.sum = row.sum * kept + weight;
                    row.top = next;
                    float* out = row.out;
                    for (int d = 0; d < p.head_dim; ++d, ++out)
                        *out = *out * kept + weight * common::get(v, from + d, p.dtype);
                }
            }
            for (int i = 0; i < count; ++i) {
                const float *out = rows[i].out, sum = rows[i].sum;
                const std::size_t at = start + static_cast<std::size_t>(first + i) * p.head_dim;
                for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
            }
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
