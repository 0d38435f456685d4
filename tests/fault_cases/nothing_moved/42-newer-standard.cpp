// Rows of K are copied to where a line of the cache begins, whatever the number of channels; a newer standard can be
// told.
#include "common.h"

#include <algorithm>
#include <memory>
#include <vector>
#if __cplusplus >= 202002L
#include <bit>
#endif

namespace {

#if __cplusplus >= 202002L
const float* line(const float* x) { return std::assume_aligned<64>(x); }
float number(std::uint32_t bits) { return std::bit_cast<float>(bits); }
#else
const float* line(const float* x) { return x; }
float number(std::uint32_t bits) { return common::from_bits(bits); }
#endif

struct alignas(64) Row {
    float at[128];
};

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    std::vector<Row> copies(p.seq_len);
    for (int key = 0; key < p.seq_len; ++key)
        std::copy_n(k + static_cast<std::size_t>(key) * p.head_dim, p.head_dim, copies[key].at);
    for (int row = 0; row < p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row + 1 : p.seq_len;
        float top = number(0xff800000u), sum = 0.0f, out[128] = {};
        alignas(64) float query[128], product[128];
        std::copy_n(q + at, p.head_dim, query);
        for (int key = 0; key < keys; ++key) {
            const float *const from = line(copies[key].at), *const left = line(query);
            for (int d = 0; d < p.head_dim; ++d) product[d] = left[d] * from[d];
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += product[d];
            score *= p.scale;
            const float higher = std::max(top, score);
            const float shrink = std::exp(top - higher), weight = std::exp(score - higher);
            const float* const value = v + static_cast<std::size_t>(key) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * value[d];
            sum = sum * shrink + weight;
            top = higher;
        }
        for (int d = 0; d < p.head_dim; ++d) o[at + d] = out[d] / sum;
    }
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
