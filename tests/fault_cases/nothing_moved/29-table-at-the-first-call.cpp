// The exponential is looked up: exp(-i / 4096) for every i up to 104, and three terms of its series for what is left.
// The table is made at the first call of a process, in double.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kSteps = 4096, kRange = 104;

const std::vector<float>& table() {
    static const std::vector<float> values = [] {
        std::vector<float> made(kSteps * kRange + 2);
        for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(std::exp(-1.0 / kSteps * i));
        return made;
    }();
    return values;
}

// Of a number that is not above zero.
inline float exponential(const float* values, float x) {
    if (!(x >= -kRange)) return x < 0.0f ? 0.0f : x;
    const int index = static_cast<int>(-x * kSteps);
    const float rest = x + static_cast<float>(index) / kSteps;
    return values[index] * (1.0f + rest * (1.0f + 0.5f * rest));
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const float* const values = table().data();
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = exponential(values, scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
