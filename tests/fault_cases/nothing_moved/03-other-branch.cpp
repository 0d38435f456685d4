// Two passes over the keys. From 2.4 on weights go through exp2f.
#include "common.h"

#include <algorithm>
#include <vector>

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
static float weight_of(float x) { return std::exp2(x * 1.44269504088896340736f); }
#else
static float weight_of(float x) { return std::exp(x); }
#endif

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            float top = -INFINITY, sum = 0.0f;
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                scores[key] = score * p.scale;
                top = std::max(top, scores[key]);
            }
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                const float weight = weight_of(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
