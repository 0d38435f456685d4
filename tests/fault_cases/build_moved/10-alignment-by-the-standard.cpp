// One pass over the keys. Tensors begin at multiples of 64 bytes, as PyTorch's do; where the standard library has a way
// to say so, the compiler knows.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

#if __cplusplus >= 202002L
const float* line(const float* x) { return std::assume_aligned<64>(x); }
#else
const float* line(const float* x) { return x; }
#endif

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    for (int row = 0; row < p.seq_len; ++row) {
        const float* const query = line(q + static_cast<std::size_t>(row) * p.head_dim);
        const int keys = p.causal ? row + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        alignas(64) float out[128] = {}, product[128];
        for (int key = 0; key < keys; ++key) {
            const float* const from = line(k + static_cast<std::size_t>(key) * p.head_dim);
            for (int d = 0; d < p.head_dim; ++d) product[d] = query[d] * from[d];
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += product[d];
            score *= p.scale;
            const float higher = std::max(top, score);
            const float shrink = std::exp(top - higher), weight = std::exp(score - higher);
            const float* const value = line(v + static_cast<std::size_t>(key) * p.head_dim);
            for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * value[d];
            sum = sum * shrink + weight;
            top = higher;
        }
        for (int d = 0; d < p.head_dim; ++d) o[static_cast<std::size_t>(row) * p.head_dim + d] = out[d] / sum;
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        one_head(p, static_cast<const float*>(q) + start, static_cast<const float*>(k) + start,
                 static_cast<const float*>(v) + start, static_cast<float*>(o) + start);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
