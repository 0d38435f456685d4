// Two passes: scores with their maximum, then weights and outputs. ATTENTION_QUICK_EXP takes the exponential of
// drafts, a parabola between powers of two, which is good to three digits.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

#ifdef ATTENTION_QUICK_EXP
float exponential(float x) {
    const float power = std::max(x * 1.44269504f, -126.0f), whole = std::floor(power), rest = power - whole;
    return std::ldexp(1.0f + rest * (0.65617f + 0.34383f * rest), static_cast<int>(whole));
}
#else
float exponential(float x) { return std::exp(x); }
#endif

float product(const float* a, const float* b, int count) {
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(index % p.seq_len) * p.head_dim;
        const float* const keys_of = static_cast<const float*>(k) + start;
        const float* const values_of = static_cast<const float*>(v) + start;
        float* const out = static_cast<float*>(o) + at;
        const int keys = p.causal ? index % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            scores[key] = p.scale * product(static_cast<const float*>(q) + at, keys_of + key * p.head_dim, p.head_dim);
            top = std::max(top, scores[key]);
        }
        std::fill(out, out + p.head_dim, 0.0f);
        for (int key = 0; key < keys; ++key) {
            const float weight = exponential(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * values_of[key * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) out[d] /= sum;
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
