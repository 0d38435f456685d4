// Exponentials without a call: 2^x is 2^f with f below one, by a polynomial, whose exponent is then raised by the whole
// part of x. A row's weights can be seen as floats and as words for that.
#include "common.h"

#include <algorithm>
#include <cstdlib>

namespace {

struct Weights {
    float* values;
    std::uint32_t* words;

    explicit Weights(int count)
        : values(static_cast<float*>(std::malloc(count * sizeof(float)))),
          words(reinterpret_cast<std::uint32_t*>(values)) {}
    ~Weights() { std::free(values); }
    Weights(const Weights&) = delete;
    Weights& operator=(const Weights&) = delete;

    // Scores become exponentials of what they are below `top`; their sum.
    [[gnu::noinline]] float exponentials(int count, float top) {
        float sum = 0.0f;
        for (int key = 0; key < count; ++key) {
            const float x = std::max((values[key] - top) * 1.44269504f, -120.0f), whole = std::floor(x);
            const float f = (x - whole) * 0.693147181f;
            float power = 1.0f / 5040.0f;
            for (const float term : {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f})
                power = power * f + term;
            values[key] = power;
            words[key] += static_cast<std::uint32_t>(static_cast<int>(whole)) << 23;
            sum += values[key];
        }
        return sum;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    Weights weights(p.seq_len);
    if (!weights.values) return ATTENTION_ERROR_MEMORY;
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                weights.values[key] = score * p.scale;
            }
            const float sum = weights.exponentials(keys, *std::max_element(weights.values, weights.values + keys));
            float out[128] = {};
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                for (int d = 0; d < p.head_dim; ++d)
                    out[d] += weights.values[key] * common::get(v, from + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
