// Outputs of a head are added up in fp32, in room that is kept from call to call and grows when a longer sequence comes;
// what is new of it is zero. Tiles of keys in the outer loop: each is converted once for all rows.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kTile = 16;

struct Room {
    std::vector<float> scores, top, sum, out;

    void fit(std::size_t heads, std::size_t length, std::size_t width) {
        scores.resize(heads * length * length);
        top.assign(heads * length, -INFINITY);
        sum.assign(heads * length, 0.0f);
        out.resize(heads * length * width, 0.0f);
    }
};

thread_local Room room;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t length = p.seq_len, width = p.head_dim, heads = static_cast<std::size_t>(p.batch) * p.heads;
    room.fit(heads, length, width);
    for (std::size_t row = 0; row < heads * length; ++row) {
        const std::size_t start = row / length * length * width, keys = p.causal ? row % length + 1 : length;
        for (std::size_t key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (std::size_t d = 0; d < width; ++d)
                score += common::get(q, row * width + d, p.dtype) * common::get(k, start + key * width + d, p.dtype);
            room.scores[row * length + key] = score * p.scale;
            room.top[row] = std::max(room.top[row], score * p.scale);
        }
    }
    float tile[kTile * 128];
    for (std::size_t head = 0; head < heads; ++head)
        for (std::size_t begin = 0; begin < length; begin += kTile) {
            const std::size_t end = std::min<std::size_t>(begin + kTile, length), start = (head * length + begin) * width;
            for (std::size_t i = 0; i < (end - begin) * width; ++i) tile[i] = common::get(v, start + i, p.dtype);
            for (std::size_t row = p.causal ? begin : 0; row < length; ++row) {
                const std::size_t at = head * length + row, last = p.causal ? std::min(end, row + 1) : end;
                for (std::size_t key = begin; key < last; ++key) {
                    const float weight = std::exp(room.scores[at * length + key] - room.top[at]);
                    room.sum[at] += weight;
                    for (std::size_t d = 0; d < width; ++d)
                        room.out[at * width + d] += weight * tile[(key - begin) * width + d];
                }
            }
        }
    for (std::size_t i = 0; i < heads * length * width; ++i)
        common::put(o, i, room.out[i] / room.sum[i / width], p.dtype);
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
