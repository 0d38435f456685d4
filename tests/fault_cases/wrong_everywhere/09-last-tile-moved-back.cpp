// Keys in tiles of sixteen, all of them full: where the last one would reach beyond the end, it is moved back until it
// fits, so that no loop has a remainder and every bound is a constant.
#include "common.h"

#include <algorithm>

namespace {

constexpr int kTile = 16;

struct Row {
    float top = -INFINITY, sum = 0.0f, out[128] = {};

    void add(const float* scores, const float* values, int width) {
        const float largest = std::max(top, *std::max_element(scores, scores + kTile));
        const float shrink = std::exp(top - largest);
        sum *= shrink;
        for (int d = 0; d < width; ++d) out[d] *= shrink;
        for (int j = 0; j < kTile; ++j) {
            const float weight = std::exp(scores[j] - largest);
            sum += weight;
            for (int d = 0; d < width; ++d) out[d] += weight * values[static_cast<std::size_t>(j) * width + d];
        }
        top = largest;
    }
};

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int row) {
    Row state;
    for (int tile = 0; tile < p.seq_len; tile += kTile) {
        const int first = std::min(tile, p.seq_len - kTile);
        float scores[kTile];
        for (int j = 0; j < kTile; ++j) {
            const float* key = k + static_cast<std::size_t>(first + j) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += q[d] * key[d];
            scores[j] = p.causal && first + j > row ? -INFINITY : score * p.scale;
        }
        state.add(scores, v + static_cast<std::size_t>(first) * p.head_dim, p.head_dim);
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = state.out[d] / state.sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    if (p.seq_len < kTile) return ATTENTION_ERROR_SHAPE;
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int i = 0; i < p.batch * p.heads; ++i)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = i * head + static_cast<std::size_t>(row) * p.head_dim;
            one_row(p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + i * head,
                    static_cast<const float*>(v) + i * head, static_cast<float*>(o) + at, row);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
