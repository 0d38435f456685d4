// V is kept in eight bits, with a step for each row of it: a quarter of the memory that the second product reads.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int rows = p.batch * p.heads * p.seq_len;
    std::vector<std::int8_t> values(static_cast<std::size_t>(rows) * p.head_dim);
    std::vector<float> steps(rows), scores(p.seq_len), out(p.head_dim);
    for (int row = 0; row < rows; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        float largest = 1e-20f;
        for (int d = 0; d < p.head_dim; ++d) largest = std::max(largest, std::fabs(common::get(v, at + d, p.dtype)));
        steps[row] = largest / 127.0f;
        for (int d = 0; d < p.head_dim; ++d)
            values[at + d] = static_cast<std::int8_t>(std::lrint(common::get(v, at + d, p.dtype) / steps[row]));
    }
    for (int row = 0; row < rows; ++row) {
        const int first = row / p.seq_len * p.seq_len, keys = p.causal ? row - first + 1 : p.seq_len;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = static_cast<std::size_t>(first + key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
            const std::int8_t* from = values.data() + static_cast<std::size_t>(first + key) * p.head_dim;
            const float weight = std::exp(scores[key] - top), factor = weight * steps[first + key];
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += factor * static_cast<float>(from[d]);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
