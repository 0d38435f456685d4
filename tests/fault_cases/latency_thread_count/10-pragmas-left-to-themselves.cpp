// One parallel loop over the rows of all heads; rows of a causal problem grow, and are dealt out in small pieces.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const float *const queries = static_cast<const float*>(q), *const keys = static_cast<const float*>(k);
    const float* const values = static_cast<const float*>(v);
    float* const outputs = static_cast<float*>(o);
#pragma omp parallel num_threads(std::max(1, p.threads))
    {
        std::vector<float> scores(p.seq_len), out(p.head_dim);
#pragma omp for schedule(dynamic, 8)
        for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
            const float* const query = queries + static_cast<std::size_t>(row) * p.head_dim;
            const int seen = p.causal ? row % p.seq_len + 1 : p.seq_len;
            for (int key = 0; key < seen; ++key) {
                const float* const other = keys + start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d) score += query[d] * other[d];
                scores[key] = score * p.scale;
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + seen);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < seen; ++key) {
                const float* const value = values + start + static_cast<std::size_t>(key) * p.head_dim;
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * value[d];
            }
            for (int d = 0; d < p.head_dim; ++d)
                outputs[static_cast<std::size_t>(row) * p.head_dim + d] = out[d] / sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
