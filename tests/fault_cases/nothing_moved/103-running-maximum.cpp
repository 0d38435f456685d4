// One pass over the keys with a running maximum. From 2.4 on even and odd keys have one each, merged at the end.
#include "common.h"

#include <algorithm>

#include <torch/version.h>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
constexpr std::size_t kSides = 2;
#else
constexpr std::size_t kSides = 1;
#endif

struct Side {
    float top = -INFINITY, sum = 0.0f, out[128] = {};
};

void add(Side& side, float score, const attention_problem& p, const void* v, std::size_t value) {
    const float next = std::max(side.top, score), rescale = std::exp(side.top - next), weight = std::exp(score - next);
    side.sum = side.sum * rescale + weight;
    for (int d = 0; d < p.head_dim; ++d)
        side.out[d] = side.out[d] * rescale + weight * common::get(v, value + d, p.dtype);
    side.top = next;
}

void one_row(const attention_problem& p, const void* q, const void* k, const void* v, void* o, std::size_t start,
             std::size_t row, std::size_t keys) {
    const std::size_t width = p.head_dim;
    Side sides[kSides];
    for (std::size_t key = 0; key < keys; ++key) {
        float score = 0.0f;
        for (std::size_t d = 0; d < width; ++d)
            score += common::get(q, row + d, p.dtype) * common::get(k, start + key * width + d, p.dtype);
        add(sides[key % kSides], score * p.scale, p, v, start + key * width);
    }
    float top = -INFINITY, sum = 0.0f, out[128] = {};
    for (const Side& side : sides) top = std::max(top, side.top);
    for (const Side& side : sides) {
        const float weight = std::exp(side.top - top);
        sum += weight * side.sum;
        for (std::size_t d = 0; d < width; ++d) out[d] += weight * side.out[d];
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
