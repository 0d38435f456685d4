// Two passes over the keys, and an exponential of its own: e^-x is 2^-n 2^-(i/16) 2^-f, the first two from tables.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kPowers = 32, kSteps = 16;
float powers[kPowers], steps[kSteps];

const bool filled = [] {
    for (int n = 0; n < kPowers; ++n) powers[n] = std::ldexp(1.0f, -n);
    for (int i = 0; i < kSteps; ++i) steps[i] = std::exp2(-static_cast<float>(i) / kSteps);
    return true;
}();

// For x >= 0: how far a score lies below its row's largest. Within two units in the last place.
float decay(float x) {
    const float sixteenths = x * 1.44269504f * kSteps;
    const int whole = static_cast<int>(sixteenths);
    const float f = (sixteenths - static_cast<float>(whole)) * (0.693147181f / kSteps);
    const float rest = 1.0f - f * (1.0f - f * (0.5f - f * (1.0f / 6 - f * (1.0f / 24))));
    return powers[whole / kSteps] * steps[whole % kSteps] * rest;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
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
            const float weight = decay(top - scores[key]);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
