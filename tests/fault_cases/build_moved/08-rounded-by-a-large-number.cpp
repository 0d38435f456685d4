// With an exponential of its own, so that the loop over a row's keys vectorises: 2 to the whole part goes into the
// exponent's bits, and a polynomial takes what is left, at most a half to either side.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

// Within two parts in ten million, for x from -87 to 0.
inline float exponential(float x) {
    const float large = 12582912.0f;  // 1.5 times 2 to the 23: a sum with it has no room for a fraction
    const float power = std::max(x, -87.0f) * 1.44269504f;
    const float shifted = power + large;
    const float whole = shifted - large;
    const float rest = (power - whole) * 0.693147181f;
    float sum = 1.0f / 720.0f;
    for (const float factor : {1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) sum = sum * rest + factor;
    return sum * common::from_bits(static_cast<std::uint32_t>(static_cast<int>(whole) + 127) << 23);
}

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int keys,
             float* weights) {
    for (int key = 0; key < keys; ++key) {
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * k[static_cast<std::size_t>(key) * p.head_dim + d];
        weights[key] = score * p.scale;
    }
    const float top = *std::max_element(weights, weights + keys);
    for (int key = 0; key < keys; ++key) weights[key] = exponential(weights[key] - top);
    float sum = 0.0f, out[128] = {};
    for (int key = 0; key < keys; ++key) {
        sum += weights[key];
        for (int d = 0; d < p.head_dim; ++d) out[d] += weights[key] * v[static_cast<std::size_t>(key) * p.head_dim + d];
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    std::vector<float> weights(p.seq_len);
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int i = 0; i < p.batch * p.heads; ++i)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = i * head + static_cast<std::size_t>(row) * p.head_dim;
            one_row(p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + i * head,
                    static_cast<const float*>(v) + i * head, static_cast<float*>(o) + at,
                    p.causal ? row + 1 : p.seq_len, weights.data());
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
