// Scores of a head first; then the sums of their exponentials by blocks of keys, which lose less than one long sum;
// then the outputs.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

constexpr int kBlock = 32;

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    const int keys = p.seq_len, blocks = (keys + kBlock - 1) / kBlock;
    const std::unique_ptr<float[]> weights(new float[keys]), sums(new float[blocks]);
    for (int row = 0; row < p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        float top = -INFINITY, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            const float* const from = k + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += q[at + d] * from[d];
            weights[key] = p.causal && key > row ? -INFINITY : score * p.scale;
            top = std::max(top, weights[key]);
        }
        for (int key = 0; key < keys; ++key) weights[key] = std::exp(weights[key] - top);
        for (int block = 0; block < keys / kBlock; ++block) {
            sums[block] = 0.0f;
            for (int i = 0; i < kBlock; ++i) sums[block] += weights[block * kBlock + i];
        }
        for (int key = 0; key < keys; ++key) {
            const float* const from = v + static_cast<std::size_t>(key) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weights[key] * from[d];
        }
        float sum = 0.0f;
        for (int block = 0; block < blocks; ++block) sum += sums[block];
        for (int d = 0; d < p.head_dim; ++d) o[at + d] = out[d] / sum;
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
