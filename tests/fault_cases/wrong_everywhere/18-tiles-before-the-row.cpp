// Tiles of 8 keys. In causal attention tiles before the row's need no mask, and tiles behind it are not computed.
#include "common.h"

#include <algorithm>

namespace {

constexpr int kTile = 8;

struct Row {
    const attention_problem& p;
    const float *query, *keys, *values;
    float top = -INFINITY, sum = 0.0f, out[128] = {};

    void tile(int begin, int end) {
        for (int key = begin; key < end; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * keys[key * p.head_dim + d];
            score *= p.scale;
            const float higher = std::max(top, score);
            const float shrink = std::exp(top - higher), weight = std::exp(score - higher);
            sum = sum * shrink + weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * values[key * p.head_dim + d];
            top = higher;
        }
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            Row r{p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + start,
                  static_cast<const float*>(v) + start};
            const int last = p.causal ? std::max(row, 1) : p.seq_len;
            for (int begin = 0; begin < last; begin += kTile) {
                const bool inside = !p.causal || begin + kTile <= row;
                r.tile(begin, inside ? std::min(begin + kTile, p.seq_len) : row + 1);
            }
            for (int d = 0; d < p.head_dim; ++d) static_cast<float*>(o)[at + d] = r.out[d] / r.sum;
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
