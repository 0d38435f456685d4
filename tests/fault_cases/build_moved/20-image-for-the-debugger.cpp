// Two passes over the keys of a row, in plain loops that the compiler turns into vectors.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

float dot(const std::vector<float>& a, std::size_t i, const std::vector<float>& b, std::size_t j, std::size_t width) {
    float parts[8] = {};
    for (std::size_t d = 0; d + 8 <= width; d += 8)
        for (std::size_t lane = 0; lane < 8; ++lane) parts[lane] += a[i + d + lane] * b[j + d + lane];
    for (std::size_t d = width / 8 * 8; d < width; ++d) parts[0] += a[i + d] * b[j + d];
    float sum = 0.0f;
    for (const float part : parts) sum += part;
    return sum;
}

std::vector<float> widened(const void* tensor, std::size_t size, int dtype) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = common::get(tensor, i, dtype);
    return values;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t rows = p.seq_len, width = p.head_dim, size = p.batch * p.heads * rows * width;
    const std::vector<float> queries = widened(q, size, p.dtype), all = widened(k, size, p.dtype),
                             values = widened(v, size, p.dtype);
    std::vector<float> weights(rows), out(width);
    for (std::size_t row = 0; row < p.batch * p.heads * rows; ++row) {
        const std::size_t start = row / rows * rows * width, keys = p.causal ? row % rows + 1 : rows;
        for (std::size_t key = 0; key < keys; ++key)
            weights[key] = dot(queries, row * width, all, start + key * width, width) * p.scale;
        const float top = *std::max_element(weights.begin(), weights.begin() + keys);
        float sum = 0.0f;
        std::fill(out.begin(), out.end(), 0.0f);
        for (std::size_t key = 0; key < keys; ++key) {
            const float weight = std::exp(weights[key] - top);
            sum += weight;
            for (std::size_t d = 0; d < width; ++d) out[d] += weight * values[start + key * width + d];
        }
        for (std::size_t d = 0; d < width; ++d) common::put(o, row * width + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
