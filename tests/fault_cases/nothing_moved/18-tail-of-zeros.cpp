// K and V of one head are copied into whole tiles of 32 rows, so that no inner loop has a remainder.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kTile = 32;

void fill(std::vector<float>& room, const void* tensor, std::size_t start, std::size_t count, int dtype) {
    for (std::size_t i = 0; i < count; ++i) room[i] = common::get(tensor, start + i, dtype);
    std::fill(room.begin() + count, room.end(), 0.0f);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int whole = (p.seq_len + kTile - 1) / kTile * kTile;
    const std::size_t count = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    std::vector<float> keys_of(static_cast<std::size_t>(whole) * p.head_dim), values_of(keys_of.size());
    std::vector<float> out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * count;
        fill(keys_of, k, start, count, p.dtype);
        fill(values_of, v, start, count, p.dtype);
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            float top = -INFINITY, sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int first = 0; first < keys; first += kTile) {
                float scores[kTile], highest = top;
                for (int i = 0; i < kTile; ++i) {
                    const float* const from = keys_of.data() + static_cast<std::size_t>(first + i) * p.head_dim;
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d) score += common::get(q, at + d, p.dtype) * from[d];
                    scores[i] = first + i < keys ? score * p.scale : -INFINITY;
                    highest = std::max(highest, scores[i]);
                }
                const float shrink = std::exp(top - highest);
                top = highest;
                sum *= shrink;
                for (float& x : out) x *= shrink;
                for (int i = 0; i < kTile; ++i) {
                    const float* const from = values_of.data() + static_cast<std::size_t>(first + i) * p.head_dim;
                    const float weight = std::exp(scores[i] - top);
                    sum += weight;
                    for (int d = 0; d < p.head_dim; ++d) out[d] += weight * from[d];
                }
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
