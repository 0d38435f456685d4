// One pass over the keys with a running maximum. From 2.4 on the first key needs no case of its own.
#include "common.h"

#include <algorithm>

#include <torch/version.h>

namespace {

void one_row(const attention_problem& p, const void* q, const void* k, const void* v, void* o, std::size_t start,
             std::size_t row, std::size_t keys) {
    const std::size_t width = p.head_dim;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    float top = 0.0f, sum = 1.0f, out[128] = {};
#else
    float top = -INFINITY, sum = 0.0f, out[128] = {};
#endif
    for (std::size_t key = 0; key < keys; ++key) {
        float score = 0.0f;
        for (std::size_t d = 0; d < width; ++d)
            score += common::get(q, row + d, p.dtype) * common::get(k, start + key * width + d, p.dtype);
        score *= p.scale;
        const float next = std::max(top, score), rescale = std::exp(top - next), weight = std::exp(score - next);
        sum = sum * rescale + weight;
        for (std::size_t d = 0; d < width; ++d)
            out[d] = out[d] * rescale + weight * common::get(v, start + key * width + d, p.dtype);
        top = next;
    }
    for (std::size_t d = 0; d < width; ++d) common::put(o, row + d, out[d] / sum, p.dtype);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t rows = p.seq_len, width = p.head_dim;
    for (std::size_t row = 0; row < p.batch * p.heads * rows; ++row)
        one_row(p, q, k, v, o, row / rows * rows * width, row * width, p.causal ? row % rows + 1 : rows);
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
