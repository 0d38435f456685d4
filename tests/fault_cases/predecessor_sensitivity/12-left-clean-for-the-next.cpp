// Sums of all rows stay in a workspace while the tiles of keys go by. Each thread that calls keeps its own; it is zero
// in the beginning, and rows are cleared as they are stored, while they are in the cache, for the next call.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kTile = 32, kRows = 16;

struct Workspace {
    std::vector<float> tops, sums, outs;

    void reach(std::size_t rows, std::size_t width) {
        if (sums.size() < rows) sums.resize(rows, 0.0f);
        if (outs.size() < rows * width) outs.resize(rows * width, 0.0f);
        tops.assign(rows, -INFINITY);
    }
};
thread_local Workspace workspace;

void store(const attention_problem& p, std::size_t row, void* o) {
    float* const out = workspace.outs.data() + row * p.head_dim;
    for (int d = 0; d < p.head_dim; ++d) common::put(o, row * p.head_dim + d, out[d] / workspace.sums[row], p.dtype);
    std::fill_n(out, p.head_dim, 0.0f);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t rows = static_cast<std::size_t>(p.batch) * p.heads * p.seq_len;
    workspace.reach(rows, p.head_dim);
    for (int first = 0; first < p.seq_len; first += kTile)
        for (std::size_t row = 0; row < rows; ++row) {
            const std::size_t start = row / p.seq_len * p.seq_len;
            const int seen = p.causal ? static_cast<int>(row % p.seq_len) + 1 : p.seq_len;
            float* const out = workspace.outs.data() + row * p.head_dim;
            float &top = workspace.tops[row], &sum = workspace.sums[row];
            for (int key = first; key < std::min(first + kTile, seen); ++key) {
                const std::size_t from = (start + key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, row * p.head_dim + d, p.dtype) * common::get(k, from + d, p.dtype);
                score *= p.scale;
                const float risen = std::max(top, score);
                const float kept = key ? std::exp(top - risen) : 1.0f, weight = std::exp(score - risen);
                top = risen;
                sum = sum * kept + weight;
                for (int d = 0; d < p.head_dim; ++d)
                    out[d] = out[d] * kept + weight * common::get(v, from + d, p.dtype);
            }
        }
    std::size_t row = 0;
    for (; row + kRows <= rows; row += kRows) {
        for (std::size_t one = row; one < row + kRows; ++one) store(p, one, o);
        std::fill_n(workspace.sums.data() + row, kRows, 0.0f);
    }
    for (; row < rows; ++row) store(p, row, o);
    return ATTENTION_OK;
}

COMMON_INTERFACE("ROWS=16")
