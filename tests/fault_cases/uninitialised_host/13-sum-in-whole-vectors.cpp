// Scores of a row lie in whole vectors of 16, so that loops over them have no remainder.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {
constexpr int kLanes = 16;
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        const int whole = (keys + kLanes - 1) / kLanes * kLanes;
        const std::unique_ptr<float[]> scores(new float[whole]);
        float top = -INFINITY;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        float lanes[kLanes] = {}, sum = 0.0f, out[128] = {};
        for (int key = 0; key < whole; key += kLanes)
            for (int lane = 0; lane < kLanes; ++lane) {
                scores[key + lane] = std::exp(scores[key + lane] - top);
                lanes[lane] += scores[key + lane];
            }
        for (const float lane : lanes) sum += lane;
        for (int key = 0; key < keys; ++key)
            for (int d = 0; d < p.head_dim; ++d)
                out[d] += scores[key] * common::get(v, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
