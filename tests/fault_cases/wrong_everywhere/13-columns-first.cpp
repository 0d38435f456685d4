// Keys in the outer loop: one is loaded once, and its products with all rows are taken while it is there.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t length = p.seq_len, width = p.head_dim;
    std::vector<float> scores(length * length), lines(length * width), out(width);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * length * width;
        for (std::size_t i = 0; i < length * width; ++i) lines[i] = common::get(q, start + i, p.dtype);
        for (std::size_t key = 0; key < length; ++key) {
            for (std::size_t d = 0; d < width; ++d) out[d] = common::get(k, start + key * width + d, p.dtype) * p.scale;
            for (std::size_t row = 0; row < length; ++row) {
                float score = 0.0f;
                for (std::size_t d = 0; d < width; ++d) score += lines[row * width + d] * out[d];
                scores[key * length + row] = score;
            }
        }
        for (std::size_t row = 0; row < length; ++row) {
            const float* const line = &scores[row * length];
            const std::size_t seen = p.causal ? row + 1 : length;
            const float top = *std::max_element(line, line + seen);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (std::size_t key = 0; key < seen; ++key) {
                const float weight = std::exp(line[key] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) out[d] += weight * common::get(v, start + key * width + d, p.dtype);
            }
            for (std::size_t d = 0; d < width; ++d) common::put(o, start + row * width + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
