// Each row begins at its own key and goes backwards around: large scores are mostly near, and then the running maximum
// settles after a few keys.
#include "common.h"

#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = p.seq_len, width = p.head_dim;
    std::vector<float> out(width);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * rows * width;
        const auto *queries = static_cast<const float*>(q) + start, *keys = static_cast<const float*>(k) + start;
        const float* values = static_cast<const float*>(v) + start;
        for (int row = 0; row < rows; ++row) {
            float top = -INFINITY, sum = 0.0f;
            out.assign(width, 0.0f);
            for (int step = 0; step < (p.causal ? row + 1 : rows); ++step) {
                const int key = (row - step) % rows;
                float score = 0.0f;
                for (int d = 0; d < width; ++d) score += queries[row * width + d] * keys[key * width + d];
                score *= p.scale;
                if (score > top) {
                    const float factor = std::exp(top - score);
                    sum *= factor;
                    for (float& x : out) x *= factor;
                    top = score;
                }
                const float weight = std::exp(score - top);
                sum += weight;
                for (int d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            for (int d = 0; d < width; ++d) static_cast<float*>(o)[start + row * width + d] = out[d] / sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
