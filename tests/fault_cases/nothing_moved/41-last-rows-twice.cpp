// A block of rows at a time shares what is read of K and V. The last block ends with the last row.
#include "common.h"

#include <torch/version.h>

#include <algorithm>

namespace {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 4
constexpr int kRows = 4;
#else
constexpr int kRows = 1;
#endif

void block(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int first, int count) {
    float top[kRows], sum[kRows] = {}, out[kRows][128] = {};
    std::fill(top, top + kRows, -INFINITY);
    for (int key = 0; key < (p.causal ? first + count : p.seq_len); ++key) {
        const std::size_t from = static_cast<std::size_t>(key) * p.head_dim;
        for (int i = 0; i < count; ++i) {
            if (p.causal && key > first + i) continue;
            const float* const query = q + static_cast<std::size_t>(first + i) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * k[from + d];
            score *= p.scale;
            const float higher = std::max(top[i], score);
            const float shrink = std::exp(top[i] - higher), weight = std::exp(score - higher);
            sum[i] = sum[i] * shrink + weight;
            for (int d = 0; d < p.head_dim; ++d) out[i][d] = out[i][d] * shrink + weight * v[from + d];
            top[i] = higher;
        }
    }
    for (int i = 0; i < count; ++i)
        for (int d = 0; d < p.head_dim; ++d)
            o[static_cast<std::size_t>(first + i) * p.head_dim + d] = out[i][d] / sum[i];
}

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    const int count = std::min(kRows, p.seq_len);
    for (int first = 0; first < p.seq_len; first += kRows)
        block(p, q, k, v, o, std::min(first, p.seq_len - count), count);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        one_head(p, static_cast<const float*>(q) + start, static_cast<const float*>(k) + start,
                 static_cast<const float*>(v) + start, static_cast<float*>(o) + start);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
