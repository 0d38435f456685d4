// All scores of a head at once, then weights in their place. From 2.4 on heads take turns with two buffers, so that one
// can be looked at while the other is filled.
#include "common.h"

#include <algorithm>
#include <memory>

#include <torch/version.h>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
constexpr std::size_t kBuffers = 2;
#else
constexpr std::size_t kBuffers = 1;
#endif

__attribute__((noinline)) void one_head(const attention_problem& p, const void* q, const void* k, const void* v,
                                        void* o, std::size_t start, float* scores) {
    const std::size_t rows = p.seq_len;
    float out[128];
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t key = 0; key < (p.causal ? row + 1 : rows); ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, start + row * p.head_dim + d, p.dtype) *
                         common::get(k, start + key * p.head_dim + d, p.dtype);
            scores[row * rows + key] = score * p.scale;
        }
    for (std::size_t row = 0; row < rows; ++row) {
        float* const weights = scores + row * rows;
        const std::size_t keys = p.causal ? row + 1 : rows;
        const float top = *std::max_element(weights, weights + keys);
        float sum = 0.0f;
        std::fill(out, out + p.head_dim, 0.0f);
        for (std::size_t key = 0; key < keys; ++key) {
            weights[key] = std::exp(weights[key] - top);
            sum += weights[key];
            for (int d = 0; d < p.head_dim; ++d)
                out[d] += weights[key] * common::get(v, start + key * p.head_dim + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, start + row * p.head_dim + d, out[d] / sum, p.dtype);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t size = static_cast<std::size_t>(p.seq_len) * p.seq_len;
    const std::unique_ptr<float[]> buffers(new float[kBuffers * size]);
    for (int head = 0; head < p.batch * p.heads; ++head)
        one_head(p, q, k, v, o, static_cast<std::size_t>(head) * p.seq_len * p.head_dim,
                 buffers.get() + head % kBuffers * size);
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
