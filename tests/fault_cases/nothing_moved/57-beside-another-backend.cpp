// Online softmax over tiles of 16 keys, fp32 inside.
#include "common.h"

#include <algorithm>

namespace {
constexpr int kTile = 16;
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f, query[128], out[128] = {};
        for (int d = 0; d < p.head_dim; ++d) query[d] = common::get(q, at + d, p.dtype) * p.scale;
        for (int tile = 0; tile < keys; tile += kTile) {
            const int count = std::min(kTile, keys - tile);
            float scores[kTile] = {}, higher = top;
            for (int i = 0; i < count; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(tile + i) * p.head_dim;
                for (int d = 0; d < p.head_dim; ++d) scores[i] += query[d] * common::get(k, from + d, p.dtype);
                higher = std::max(higher, scores[i]);
            }
            const float shrink = std::exp(top - higher);
            sum *= shrink;
            for (int d = 0; d < p.head_dim; ++d) out[d] *= shrink;
            for (int i = 0; i < count; ++i) {
                const float weight = std::exp(scores[i] - higher);
                const std::size_t from = start + static_cast<std::size_t>(tile + i) * p.head_dim;
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
            top = higher;
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
