// Queries are split into whole steps, which fit in eight bits, and what is left. The products with the steps are exact
// wherever those with the keys are, so that the two sums lose less than one would.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr float kStep = 1.0f / 16;

// x as a number of steps, and the rest, which is small.
struct Split {
    char steps;
    float rest;
    explicit Split(float x) {
        steps = static_cast<char>(static_cast<int>(std::lrintf(std::min(std::max(x / kStep, -127.0f), 127.0f))));
        rest = x - static_cast<float>(static_cast<int>(std::lrintf(std::min(std::max(x / kStep, -127.0f), 127.0f)))) * kStep;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        char steps[128];
        float rest[128], out[128] = {}, top = -INFINITY, sum = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) {
            const Split split(common::get(q, at + d, p.dtype));
            steps[d] = split.steps, rest[d] = split.rest;
        }
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float coarse = 0.0f, fine = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) {
                const float x = common::get(k, from + d, p.dtype);
                coarse += steps[d] * x, fine += rest[d] * x;
            }
            scores[key] = (coarse * kStep + fine) * p.scale;
            top = std::max(top, scores[key]);
        }
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
