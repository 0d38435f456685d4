// Causal scores lie packed, row after row without the keys that a row does not see, which takes half of the square. A
// head's scores are made at once, then its weights, then its outputs.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

std::size_t place(int row) { return static_cast<std::size_t>(row) * (row + 1) / 2; }

struct Head {
    const attention_problem& p;
    std::vector<float> scores, sums;

    explicit Head(const attention_problem& problem)
        : p(problem),
          scores(static_cast<std::size_t>(p.seq_len) * p.seq_len / (p.causal ? 2 : 1)),
          sums(p.seq_len) {}

    float* row(int index) {
        return scores.data() + (p.causal ? place(index) : static_cast<std::size_t>(index) * p.seq_len);
    }
    int keys(int index) const { return p.causal ? index + 1 : p.seq_len; }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> out(p.head_dim);
    for (int index = 0; index < p.batch * p.heads; ++index) {
        const std::size_t start = static_cast<std::size_t>(index) * p.seq_len * p.head_dim;
        Head head(p);
        for (int row = 0; row < p.seq_len; ++row)
            for (int key = 0; key < head.keys(row); ++key) {
                const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                head.row(row)[key] = score * p.scale;
            }
        for (int row = 0; row < p.seq_len; ++row) {
            float *const first = head.row(row), *const last = first + head.keys(row);
            const float top = *std::max_element(first, last);
            for (float* score = first; score != last; ++score) head.sums[row] += *score = std::exp(*score - top);
        }
        for (int row = 0; row < p.seq_len; ++row) {
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < head.keys(row); ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                const float weight = head.row(row)[key] / head.sums[row];
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d], p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
