// Tiles of keys and values are copied ahead: while one is in use the next one is on its way, so that rows never wait
// for memory. Behind a head's last tile comes its first, for the next rows, and then the next head's.
#include "common.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace {

constexpr int kKeys = 32, kRows = 32;

struct Tile {
    std::vector<float> keys, values;
    int heads = 0, rows = 0, width = 0;

    bool of(const attention_problem& p) const {
        return heads == p.batch * p.heads && rows == p.seq_len && width == p.head_dim;
    }
    void fetch(const attention_problem& p, const float* k, const float* v, int head, int first) {
        const std::size_t from = (static_cast<std::size_t>(head) * p.seq_len + first) * p.head_dim;
        const std::size_t count = static_cast<std::size_t>(std::min(kKeys, p.seq_len - first)) * p.head_dim;
        keys.assign(k + from, k + from + count);
        values.assign(v + from, v + from + count);
        heads = p.batch * p.heads, rows = p.seq_len, width = p.head_dim;
    }
};

struct Row {
    float top = -INFINITY, sum = 0.0f, out[128] = {};

    void see(const attention_problem& p, const float* q, const float* key, const float* value) {
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * key[d];
        score *= p.scale;
        const float largest = std::max(top, score), shrink = std::exp(top - largest);
        const float weight = std::exp(score - largest);
        sum = sum * shrink + weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * value[d];
        top = largest;
    }
};

std::mutex busy;
Tile now, ahead;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const auto *queries = static_cast<const float*>(q), *keys = static_cast<const float*>(k);
    const auto* values = static_cast<const float*>(v);
    const int tiles = (p.seq_len + kKeys - 1) / kKeys, blocks = (p.seq_len + kRows - 1) / kRows;
    const int steps = p.batch * p.heads * blocks * tiles;
    const std::lock_guard<std::mutex> alone(busy);
    if (!ahead.of(p)) ahead.fetch(p, keys, values, 0, 0);
    std::vector<Row> rows;
    for (int step = 0; step < steps; ++step) {
        const int head = step / (blocks * tiles), block = step / tiles % blocks, tile = step % tiles;
        const int following = (step + 1) % steps;
        std::swap(now, ahead);
        ahead.fetch(p, keys, values, following / (blocks * tiles), following % tiles * kKeys);
        const int first = block * kRows, count = std::min(kRows, p.seq_len - first);
        const std::size_t at = (static_cast<std::size_t>(head) * p.seq_len + first) * p.head_dim;
        if (tile == 0) rows.assign(count, Row());
        for (int i = 0; i < count; ++i)
            for (int j = 0; j < std::min(kKeys, p.seq_len - tile * kKeys); ++j)
                if (!p.causal || tile * kKeys + j <= first + i)
                    rows[i].see(p, queries + at + i * p.head_dim, now.keys.data() + j * p.head_dim,
                                now.values.data() + j * p.head_dim);
        if (tile == tiles - 1)
            for (int i = 0; i < count; ++i)
                for (int d = 0; d < p.head_dim; ++d)
                    static_cast<float*>(o)[at + i * p.head_dim + d] = rows[i].out[d] / rows[i].sum;
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
