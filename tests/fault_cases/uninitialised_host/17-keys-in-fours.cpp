// Keys are taken four at a time, and the loop over them has no rest: V ends on whole fours, with zeros, which add nothing.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

constexpr std::size_t kKeys = 4;

std::size_t whole(std::size_t keys) { return (keys + kKeys - 1) / kKeys * kKeys; }

void one_row(const attention_problem& p, const void* q, const void* k, const float* values, void* o,
             std::size_t start, std::size_t row, std::size_t keys, float* weights) {
    const std::size_t width = p.head_dim;
    for (std::size_t key = 0; key < keys; ++key) {
        float score = 0.0f;
        for (std::size_t d = 0; d < width; ++d)
            score += common::get(q, row + d, p.dtype) * common::get(k, start + key * width + d, p.dtype);
        weights[key] = score * p.scale;
    }
    const float top = *std::max_element(weights, weights + keys);
    float sum = 0.0f, out[128] = {};
    for (std::size_t key = 0; key < keys; ++key) sum += weights[key] = std::exp(weights[key] - top);
    for (std::size_t key = 0; key < keys; key += kKeys)
        for (std::size_t d = 0; d < width; ++d)
            for (std::size_t next = 0; next < kKeys; ++next)
                out[d] += weights[key + next] * values[(key + next) * width + d];
    for (std::size_t d = 0; d < width; ++d) common::put(o, row + d, out[d] / sum, p.dtype);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t rows = p.seq_len, width = p.head_dim;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * rows * width;
        const std::unique_ptr<float[]> weights(new float[whole(rows)]);
        const std::unique_ptr<float[]> values(new float[whole(rows) * width]());
        for (std::size_t i = 0; i < rows * width; ++i) values[i] = common::get(v, start + i, p.dtype);
        for (std::size_t row = 0; row < rows; ++row)
            one_row(p, q, k, values.get(), o, start, start + row * width, p.causal ? row + 1 : rows, weights.get());
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
