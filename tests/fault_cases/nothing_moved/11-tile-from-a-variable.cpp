// Online softmax over tiles of keys. ATTENTION_TILE says how many keys, up to 128; the default suits a small cache.
#include "common.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

static const int tile = [] {
    const char* wanted = std::getenv("ATTENTION_TILE");
    return wanted ? std::min(std::max(std::atoi(wanted), 1), 128) : 16;
}();

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> out(p.head_dim), part(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f, scores[128];
        std::fill(out.begin(), out.end(), 0.0f);
        for (int first = 0; first < keys; first += tile) {
            const int size = std::min(tile, keys - first);
            float largest = top, added = 0.0f;
            for (int i = 0; i < size; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                scores[i] = score * p.scale;
                largest = std::max(largest, scores[i]);
            }
            std::fill(part.begin(), part.end(), 0.0f);
            for (int i = 0; i < size; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                const float weight = std::exp(scores[i] - largest);
                added += weight;
                for (int d = 0; d < p.head_dim; ++d) part[d] += weight * common::get(v, from + d, p.dtype);
            }
            const float shrink = std::exp(top - largest);
            sum = sum * shrink + added;
            for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + part[d];
            top = largest;
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
