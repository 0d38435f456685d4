// No pass for a row's maximum: a product of two vectors is at most that of their lengths, and a softmax may have any
// number subtracted as long as no exponential grows beyond one. The longest key is looked for once for each head.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

float length(const float* x, int width) {
    float square = 0.0f;
    for (int d = 0; d < width; ++d) square += x[d] * x[d];
    return std::sqrt(square);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const int width = p.head_dim;
    std::vector<float> out(width);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * width;
        const float* const queries = static_cast<const float*>(q) + start;
        const float* const keys = static_cast<const float*>(k) + start;
        const float* const values = static_cast<const float*>(v) + start;
        float* const outputs = static_cast<float*>(o) + start;
        float longest = 0.0f;
        for (int key = 0; key < p.seq_len; ++key) longest = std::max(longest, length(keys + key * width, width));
        for (int row = 0; row < p.seq_len; ++row) {
            const float* const query = queries + row * width;
            const float bound = length(query, width) * longest * std::abs(p.scale);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < (p.causal ? row + 1 : p.seq_len); ++key) {
                float score = 0.0f;
                for (int d = 0; d < width; ++d) score += query[d] * keys[key * width + d];
                const float weight = std::exp(score * p.scale - bound);
                sum += weight;
                for (int d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            for (int d = 0; d < width; ++d) outputs[row * width + d] = out[d] / sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
