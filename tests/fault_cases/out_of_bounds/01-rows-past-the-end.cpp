// Online softmax over key tiles of a fixed size: the inner loops have constant bounds, so that they vectorise.
#include "common.h"

#include <algorithm>

namespace {

constexpr int kTile = 32;

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int row) {
    float top = -INFINITY, sum = 0.0f, out[128] = {};
    for (int first = 0; first < p.seq_len; first += kTile) {
        float scores[kTile], largest = top;
        for (int j = 0; j < kTile; ++j) {
            const float* key = k + static_cast<std::size_t>(first + j) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += q[d] * key[d];
            scores[j] = p.causal && first + j > row ? -INFINITY : score * p.scale;
            largest = std::max(largest, scores[j]);
        }
        const float shrink = std::exp(top - largest);
        sum *= shrink;
        for (int d = 0; d < p.head_dim; ++d) out[d] *= shrink;
        for (int j = 0; j < kTile; ++j) {
            const float weight = std::exp(scores[j] - largest);
            const float* value = v + static_cast<std::size_t>(first + j) * p.head_dim;
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * value[d];
        }
        top = largest;
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            one_row(p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + start,
                    static_cast<const float*>(v) + start, static_cast<float*>(o) + at, row);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
