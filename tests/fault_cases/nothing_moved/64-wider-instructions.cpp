// A row's scores first, then their softmax, then the mixture of values; all in fp32, and rounded once.
// Keys lie with their channels outermost, so that neighbours in memory are neighbours in a row of scores.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t length = p.seq_len, width = p.head_dim;
    std::vector<float> keys(length * width), values(length * width), scores(length), query(width), out(width);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * length * width;
        for (std::size_t i = 0; i < length * width; ++i) {
            keys[i % width * length + i / width] = common::get(k, start + i, p.dtype);
            values[i] = common::get(v, start + i, p.dtype);
        }
        for (std::size_t row = 0; row < length; ++row) {
            const std::size_t seen = p.causal ? row + 1 : length;
            for (std::size_t d = 0; d < width; ++d) query[d] = common::get(q, start + row * width + d, p.dtype);
            float top = -INFINITY, sum = 0.0f;
            std::fill(scores.begin(), scores.end(), 0.0f);
            for (std::size_t d = 0; d < width; ++d)
                for (std::size_t key = 0; key < seen; ++key) scores[key] += query[d] * keys[d * length + key];
            for (std::size_t key = 0; key < seen; ++key) {
                scores[key] *= p.scale;
                top = std::max(top, scores[key]);
            }
            std::fill(out.begin(), out.end(), 0.0f);
            for (std::size_t key = 0; key < seen; ++key) {
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            for (std::size_t d = 0; d < width; ++d) common::put(o, start + row * width + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
