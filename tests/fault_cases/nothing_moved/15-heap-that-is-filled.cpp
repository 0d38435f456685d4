// Rows are combined from splits of 32 keys. A split leaves maximum, sum and outputs in memory that new does not clear;
// how many splits a row has is known before, and each of these leaves something.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

constexpr int kSplit = 32;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int most = (p.seq_len + kSplit - 1) / kSplit, width = p.head_dim + 2;
    const std::unique_ptr<float[]> parts(new float[static_cast<std::size_t>(most) * width]), scores(new float[kSplit]);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(index % p.seq_len) * p.head_dim;
        const int keys = p.causal ? index % p.seq_len + 1 : p.seq_len, splits = (keys + kSplit - 1) / kSplit;
        float highest = -INFINITY;
        for (int split = 0; split < splits; ++split) {
            float *const out = parts.get() + static_cast<std::size_t>(split) * width, *const rest = out + p.head_dim;
            const int first = split * kSplit, count = std::min(kSplit, keys - first);
            for (int i = 0; i < count; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                scores[i] = score * p.scale;
            }
            rest[0] = *std::max_element(scores.get(), scores.get() + count);
            rest[1] = 0.0f;
            highest = std::max(highest, rest[0]);
            for (int i = 0; i < count; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                const float weight = std::exp(scores[i] - rest[0]);
                rest[1] += weight;
                for (int d = 0; d < p.head_dim; ++d) {
                    const float value = weight * common::get(v, from + d, p.dtype);
                    out[d] = i ? out[d] + value : value;
                }
            }
        }
        float sum = 0.0f;
        for (int split = 0; split < splits; ++split) {
            float* const rest = parts.get() + static_cast<std::size_t>(split) * width + p.head_dim;
            rest[0] = std::exp(rest[0] - highest);
            sum += rest[0] * rest[1];
        }
        for (int d = 0; d < p.head_dim; ++d) {
            float value = 0.0f;
            for (int split = 0; split < splits; ++split) {
                const float* const out = parts.get() + static_cast<std::size_t>(split) * width;
                value += out[p.head_dim] * out[d];
            }
            common::put(o, at + d, value / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
