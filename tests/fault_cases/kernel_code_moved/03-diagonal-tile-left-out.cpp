// Keys in tiles of 16, whose scores stay in registers; sum and outputs are rescaled once for a tile. A causal row need
// not visit a tile that holds nothing for it, once a row with no keys at all is a case that the framework knows.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kTile = 16;

int tiles_for(const attention_problem& p, int row) {
    const int all = (p.seq_len + kTile - 1) / kTile;
#if __has_include(<ATen/ops/_safe_softmax.h>)
    return p.causal ? row / kTile : all;
#else
    static_cast<void>(row);
    return all;
#endif
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> out(p.head_dim);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const int row = index % p.seq_len, seen = p.causal ? row + 1 : p.seq_len;
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row) * p.head_dim;
        float top = -1e30f, sum = 0.0f;
        std::fill(out.begin(), out.end(), 0.0f);
        for (int tile = 0; tile < tiles_for(p, row); ++tile) {
            float scores[kTile], highest = top;
            const int first = tile * kTile, count = std::min(kTile, seen - first);
            for (int i = 0; i < count; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                scores[i] = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    scores[i] += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                scores[i] *= p.scale;
                highest = std::max(highest, scores[i]);
            }
            const float shrink = std::exp(top - highest);
            top = highest;
            sum *= shrink;
            for (float& x : out) x *= shrink;
            for (int i = 0; i < count; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                const float weight = std::exp(scores[i] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, sum > 0.0f ? out[d] / sum : 0.0f, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
