// The exponential is a polynomial on half a unit of ln 2, and the power of two that is left goes straight into the
// exponent's bits: no table, no branch, and the compiler makes eight or sixteen of them at once.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

inline float exponential(float x) {
    const float power = std::floor(x * 1.44269504088896340736f + 0.5f);
    const float rest = (x - power * 0.693359375f) + power * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * rest + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * rest * rest + rest + 1.0f;
    return y * common::from_bits(static_cast<std::uint32_t>(static_cast<std::int32_t>(power) + 127) << 23);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> weights(p.seq_len), out(p.head_dim);
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
            weights[key] = score * p.scale;
            top = std::max(top, weights[key]);
        }
        for (int key = 0; key < keys; ++key) weights[key] = exponential(weights[key] - top);
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            sum += weights[key];
            for (int d = 0; d < p.head_dim; ++d) out[d] += weights[key] * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
