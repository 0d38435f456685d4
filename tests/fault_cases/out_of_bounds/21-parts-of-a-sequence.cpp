// Keys in parts of 64, each with a maximum, a sum and outputs of its own, which are merged when all are there.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

constexpr int kPart = 64, kParts = 8, kWidth = 128;

struct Partials {
    float out[kParts][kWidth];
    float sum[kParts];
    float top[kParts];
};

void one_part(const attention_problem& p, const void* q, const void* k, const void* v, std::size_t start,
              std::size_t row, std::size_t first, std::size_t last, float* out, float& sum, float& top) {
    const std::size_t width = p.head_dim;
    float scores[kPart];
    top = -INFINITY;
    for (std::size_t key = first; key < last; ++key) {
        float score = 0.0f;
        for (std::size_t d = 0; d < width; ++d)
            score += common::get(q, row + d, p.dtype) * common::get(k, start + key * width + d, p.dtype);
        top = std::max(top, scores[key - first] = score * p.scale);
    }
    sum = 0.0f;
    std::fill(out, out + width, 0.0f);
    for (std::size_t key = first; key < last; ++key) {
        const float weight = std::exp(scores[key - first] - top);
        sum += weight;
        for (std::size_t d = 0; d < width; ++d) out[d] += weight * common::get(v, start + key * width + d, p.dtype);
    }
}

void merge(const attention_problem& p, const Partials& partials, int parts, void* o, std::size_t row) {
    float top = -INFINITY, sum = 0.0f, out[kWidth] = {};
    for (int part = 0; part < parts; ++part) top = std::max(top, partials.top[part]);
    for (int part = 0; part < parts; ++part) {
        const float weight = std::exp(partials.top[part] - top);
        sum += weight * partials.sum[part];
        for (int d = 0; d < p.head_dim; ++d) out[d] += weight * partials.out[part][d];
    }
    for (int d = 0; d < p.head_dim; ++d) common::put(o, row + d, out[d] / sum, p.dtype);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t rows = p.seq_len;
    const std::unique_ptr<Partials> partials(new Partials);
    for (std::size_t row = 0; row < p.batch * p.heads * rows; ++row) {
        const std::size_t start = row / rows * rows * p.head_dim, keys = p.causal ? row % rows + 1 : rows;
        int part = 0;
        for (std::size_t key = 0; key < keys; key += kPart, ++part)
            one_part(p, q, k, v, start, row * p.head_dim, key, std::min(key + kPart, keys), partials->out[part],
                     partials->sum[part], partials->top[part]);
        merge(p, *partials, part, o, row * p.head_dim);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
