// A second thread converts K and V to fp32, a tile of 16 keys at a time, and the caller goes over all rows with each.
// Tiles lie in a ring, so that the next one is ready when it is wanted; the row's state stays with the rows.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr int kTile = 16, kSlots = 2;

struct Ring {
    std::vector<float> keys, values;
    std::atomic<int> filled{0}, emptied{0};

    explicit Ring(int width) : keys(kSlots * kTile * width), values(keys.size()) {}
};

void fill(Ring& ring, const attention_problem& p, const void* k, const void* v, std::size_t start, int tiles) {
    for (int tile = 0; tile < tiles; ++tile) {
        while (tile - ring.emptied.load(std::memory_order_acquire) > kSlots) std::this_thread::yield();
        const int size = std::min(kTile, p.seq_len - tile * kTile) * p.head_dim;
        const std::size_t from = start + static_cast<std::size_t>(tile) * kTile * p.head_dim;
        const std::size_t to = static_cast<std::size_t>(tile % kSlots) * kTile * p.head_dim;
        for (int i = 0; i < size; ++i) {
            ring.keys[to + i] = common::get(k, from + i, p.dtype);
            ring.values[to + i] = common::get(v, from + i, p.dtype);
        }
        ring.filled.store(tile + 1, std::memory_order_release);
    }
}

struct Row {
    float top = -INFINITY, sum = 0.0f, out[128] = {};

    void add(const float* query, const float* keys, const float* values, int size, int width, float scale) {
        float scores[kTile], largest = top;
        for (int i = 0; i < size; ++i) {
            scores[i] = 0.0f;
            for (int d = 0; d < width; ++d) scores[i] += query[d] * keys[i * width + d];
            largest = std::max(largest, scores[i] *= scale);
        }
        const float shrink = std::exp(top - largest);
        sum *= shrink;
        for (int d = 0; d < width; ++d) out[d] *= shrink;
        for (int i = 0; i < size; ++i) {
            const float weight = std::exp(scores[i] - largest);
            sum += weight;
            for (int d = 0; d < width; ++d) out[d] += weight * values[i * width + d];
        }
        top = largest;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int tiles = (p.seq_len + kTile - 1) / kTile;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim, tile_size = kTile * p.head_dim;
        std::vector<Row> rows(p.seq_len);
        std::vector<float> queries(static_cast<std::size_t>(p.seq_len) * p.head_dim);
        for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = common::get(q, start + i, p.dtype);
        Ring ring(p.head_dim);
        std::thread filler(fill, std::ref(ring), std::cref(p), k, v, start, tiles);
        for (int tile = 0; tile < tiles; ++tile) {
            while (ring.filled.load(std::memory_order_acquire) <= tile) std::this_thread::yield();
            for (int row = p.causal ? tile * kTile : 0; row < p.seq_len; ++row) {
                const int seen = p.causal ? row + 1 : p.seq_len;
                rows[row].add(queries.data() + row * p.head_dim, ring.keys.data() + tile % kSlots * tile_size,
                              ring.values.data() + tile % kSlots * tile_size, std::min(kTile, seen - tile * kTile),
                              p.head_dim, p.scale);
            }
            ring.emptied.store(tile + 1, std::memory_order_release);
        }
        filler.join();
        for (std::size_t i = 0; i < queries.size(); ++i) {
            const Row& row = rows[i / p.head_dim];
            common::put(o, start + i, row.out[i % p.head_dim] / row.sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
