// Two passes over tiles of four keys. The first finds the row's maximum and each tile's; a tile 20 below the row's adds
// nothing in fp32, and the second pass skips it. Buffers are kept for the next call.
#include "common.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace {

constexpr int kTile = 4;
constexpr float kNothing = 20.0f;

std::mutex one_call;
std::vector<float> scores, tops;
std::vector<char> skipped;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const std::lock_guard<std::mutex> guard(one_call);
    const int rows = p.batch * p.heads * p.seq_len, tiles = (p.seq_len + kTile - 1) / kTile;
    scores.resize(p.seq_len);
    tops.resize(tiles);
    skipped.resize(static_cast<std::size_t>(rows) * tiles);
    for (int row = 0; row < rows; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const float *query = static_cast<const float*>(q) + at, *keys_of = static_cast<const float*>(k) + start;
        const float* const values_of = static_cast<const float*>(v) + start;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        char* const skip = skipped.data() + static_cast<std::size_t>(row) * tiles;
        float top = -INFINITY, sum = 0.0f, out[128] = {};
        std::fill(tops.begin(), tops.end(), -INFINITY);
        for (int key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * keys_of[key * p.head_dim + d];
            scores[key] = score * p.scale;
            tops[key / kTile] = std::max(tops[key / kTile], scores[key]);
            top = std::max(top, scores[key]);
        }
        for (int tile = 0; tile < tiles; ++tile)
            if (tops[tile] < top - kNothing) skip[tile] = 1;
        for (int key = 0; key < keys; ++key) {
            if (skip[key / kTile]) continue;
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * values_of[key * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) static_cast<float*>(o)[at + d] = out[d] / sum;
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
