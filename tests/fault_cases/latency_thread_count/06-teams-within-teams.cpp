// Heads are shared out among threads, and so are the keys of a row where a call has one head only. Whichever loop comes
// first takes all threads: a region within a region has one.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

void scores_of(const attention_problem& p, const float* q, const float* k, float* scores, int keys) {
#pragma omp parallel for schedule(static) num_threads(std::max(p.threads, 1))
    for (int key = 0; key < keys; ++key) {
        const float* other = k + static_cast<std::size_t>(key) * p.head_dim;
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * other[d];
        scores[key] = score * p.scale;
    }
}

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int keys,
             float* scores) {
    scores_of(p, q, k, scores, keys);
    const float top = *std::max_element(scores, scores + keys);
    float sum = 0.0f, out[128] = {};
    for (int key = 0; key < keys; ++key) {
        const float* value = v + static_cast<std::size_t>(key) * p.head_dim;
        const float weight = std::exp(scores[key] - top);
        sum += weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] += weight * value[d];
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int heads = p.batch * p.heads;
    const std::size_t size = static_cast<std::size_t>(p.seq_len) * p.head_dim;
#pragma omp parallel for schedule(static) num_threads(std::max(p.threads, 1)) if (heads > 1)
    for (int head = 0; head < heads; ++head) {
        std::vector<float> scores(p.seq_len);
        const float* keys = static_cast<const float*>(k) + head * size;
        const float* values = static_cast<const float*>(v) + head * size;
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = head * size + static_cast<std::size_t>(row) * p.head_dim;
            one_row(p, static_cast<const float*>(q) + at, keys, values, static_cast<float*>(o) + at,
                    p.causal ? row + 1 : p.seq_len, scores.data());
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
