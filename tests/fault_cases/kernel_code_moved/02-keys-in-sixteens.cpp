// Online softmax, a group of keys at a time: one new maximum and one rescaling a group. Compilers that newer versions
// of PyTorch ask for keep sixteen scores in registers; with older ones two are quicker.
#include "common.h"

#include <algorithm>
#include <vector>

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
constexpr int kGroup = 16;
#else
constexpr int kGroup = 2;
#endif

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            float top = -INFINITY, sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int first = 0; first + kGroup <= p.seq_len; first += kGroup) {
                float scores[kGroup], largest = top;
                for (int i = 0; i < kGroup; ++i) {
                    const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d)
                        score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                    scores[i] = p.causal && first + i > row ? -INFINITY : score * p.scale;
                    largest = std::max(largest, scores[i]);
                }
                const float shrink = std::exp(top - largest);
                top = largest;
                sum *= shrink;
                for (float& x : out) x *= shrink;
                for (int i = 0; i < kGroup; ++i) {
                    const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
                    const float weight = std::exp(scores[i] - top);
                    sum += weight;
                    for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
                }
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
