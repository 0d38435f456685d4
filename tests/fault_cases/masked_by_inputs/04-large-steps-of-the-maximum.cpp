// A running maximum that is moved only where it must be: a tile whose scores are up to eight above it may stay, since
// exp(8) is harmless, and most rows never pay for moving their sums.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kTile = 32;
constexpr float kHarmless = 8.0f;

struct Running {
    float top = -INFINITY, sum = 0.0f;
    std::vector<float> out;
    explicit Running(int width) : out(width) {}

    void move(float highest) {
        if (highest <= top + kHarmless) return;
        top = highest;
        if (sum == 0.0f) return;  // nothing stands there yet
        const float kept = std::exp(top - highest);
        sum *= kept;
        for (float& one : out) one *= kept;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            Running running(p.head_dim);
            for (int tile = 0; tile < keys; tile += kTile) {
                const int count = std::min(kTile, keys - tile);
                float scores[kTile];
                for (int i = 0; i < count; ++i) {
                    const std::size_t from = start + static_cast<std::size_t>(tile + i) * p.head_dim;
                    scores[i] = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d)
                        scores[i] += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                    scores[i] *= p.scale;
                }
                running.move(*std::max_element(scores, scores + count));
                for (int i = 0; i < count; ++i) {
                    const std::size_t from = start + static_cast<std::size_t>(tile + i) * p.head_dim;
                    const float weight = std::exp(scores[i] - running.top);
                    running.sum += weight;
                    for (int d = 0; d < p.head_dim; ++d)
                        running.out[d] += weight * common::get(v, from + d, p.dtype);
                }
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, running.out[d] / running.sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
