// Exponentials and their sum go by eight, without a loop for what remains: the row of scores has room for whole eights.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

constexpr int kLanes = 8;

// exp(x - top) in place; the sum.
float weigh(float* x, int eights, float top) {
    float sums[kLanes] = {};
    for (int i = 0; i < eights; ++i, x += kLanes)
        for (int lane = 0; lane < kLanes; ++lane) sums[lane] += x[lane] = std::exp(x[lane] - top);
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const std::unique_ptr<float[]> scores(new float[(p.seq_len + kLanes - 1) / kLanes * kLanes]);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(index % p.seq_len) * p.head_dim;
        const float* const query = static_cast<const float*>(q) + at;
        const float *from = static_cast<const float*>(k) + start, *value = static_cast<const float*>(v) + start;
        float* const out = static_cast<float*>(o) + at;
        const int keys = p.causal ? index % p.seq_len + 1 : p.seq_len;
        for (int key = 0; key < keys; ++key, from += p.head_dim) {
            scores[key] = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) scores[key] += query[d] * from[d];
            scores[key] *= p.scale;
        }
        const float top = *std::max_element(scores.get(), scores.get() + keys);
        const float sum = weigh(scores.get(), (keys + kLanes - 1) / kLanes, top);
        std::fill(out, out + p.head_dim, 0.0f);
        for (int key = 0; key < keys; ++key, value += p.head_dim)
            for (int d = 0; d < p.head_dim; ++d) out[d] += scores[key] / sum * value[d];
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
