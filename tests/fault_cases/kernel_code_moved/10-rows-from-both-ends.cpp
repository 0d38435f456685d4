// Two rows at a time, which share what is read of K and V; of causal ones the first goes with the last, and so on, so
// that every pair costs the same.
#include "common.h"

#include <torch/version.h>

#include <algorithm>
#include <vector>

namespace {

void rows(const attention_problem& p, const float* q, const float* k, const float* v, float* o, const int* which,
          int count, int keys) {
    std::vector<float> scores(static_cast<std::size_t>(count) * keys);
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, out[2][128] = {};
    for (int key = 0; key < keys; ++key) {
        const float* const from = k + static_cast<std::size_t>(key) * p.head_dim;
        for (int i = 0; i < count; ++i) {
            const float* const query = q + static_cast<std::size_t>(which[i]) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * from[d];
            scores[static_cast<std::size_t>(i) * keys + key] = score *= p.scale;
            top[i] = std::max(top[i], score);
        }
    }
    for (int key = 0; key < keys; ++key) {
        const float* const from = v + static_cast<std::size_t>(key) * p.head_dim;
        for (int i = 0; i < count; ++i) {
            const float weight = std::exp(scores[static_cast<std::size_t>(i) * keys + key] - top[i]);
            sum[i] += weight;
            for (int d = 0; d < p.head_dim; ++d) out[i][d] += weight * from[d];
        }
    }
    for (int i = 0; i < count; ++i)
        for (int d = 0; d < p.head_dim; ++d)
            o[static_cast<std::size_t>(which[i]) * p.head_dim + d] = out[i][d] / sum[i];
}

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 4
    for (int near = 0, far = p.seq_len - 1; near <= far; ++near, --far) {
        const int which[2] = {far, near};
        rows(p, q, k, v, o, which, near < far ? 2 : 1, p.causal ? far + 1 : p.seq_len);
    }
#else
    for (int row = 0; row < p.seq_len; ++row) rows(p, q, k, v, o, &row, 1, p.causal ? row + 1 : p.seq_len);
#endif
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
