// Online softmax over tiles of 32 keys. From 2.3 on logits are kept in powers of two: the scale takes log2(e) along, and
// every weight costs one multiplication less.
#include "common.h"

#include <algorithm>
#include <vector>

#include <torch/version.h>

namespace {

constexpr int kTile = 32;

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
constexpr float kUnit = 1.44269504088896340736f;
inline float power(float x) { return std::exp2(x); }
#else
constexpr float kUnit = 1.0f;
inline float power(float x) { return std::exp(x); }
#endif

struct Row {
    float top = -INFINITY, sum = 0.0f;
    float out[128] = {};

    void raise(float largest, int width) {
        const float shrink = std::exp(top - largest);
        for (int d = 0; d < width; ++d) out[d] *= shrink;
        sum *= shrink;
        top = largest;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> query(p.head_dim);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const std::size_t start = static_cast<std::size_t>(index / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const int keys = p.causal ? index % p.seq_len + 1 : p.seq_len;
        for (int d = 0; d < p.head_dim; ++d) query[d] = common::get(q, at + d, p.dtype) * (p.scale * kUnit);
        Row row;
        for (int first = 0; first < keys; first += kTile) {
            const int size = std::min(kTile, keys - first);
            float scores[kTile], largest = row.top;
            for (int i = 0; i < size; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                scores[i] = 0.0f;
                for (int d = 0; d < p.head_dim; ++d) scores[i] += query[d] * common::get(k, from + d, p.dtype);
                largest = std::max(largest, scores[i]);
            }
            if (largest > row.top) row.raise(largest, p.head_dim);
            for (int i = 0; i < size; ++i) {
                const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                const float weight = power(scores[i] - row.top);
                row.sum += weight;
                for (int d = 0; d < p.head_dim; ++d) row.out[d] += weight * common::get(v, from + d, p.dtype);
            }
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, row.out[d] / row.sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
