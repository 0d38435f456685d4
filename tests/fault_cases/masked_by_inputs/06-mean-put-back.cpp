// Values are summed up about their mean, for which sums are smaller and lose less; the mean is put back behind.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

std::vector<float> mean_of(const attention_problem& p, const float* x) {
    std::vector<double> sum(p.head_dim);
    for (int row = 0; row < p.seq_len; ++row)
        for (int d = 0; d < p.head_dim; ++d) sum[d] += x[static_cast<std::size_t>(row) * p.head_dim + d];
    std::vector<float> mean(p.head_dim);
    for (int d = 0; d < p.head_dim; ++d) mean[d] = static_cast<float>(sum[d] / p.seq_len);
    return mean;
}

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    const std::vector<float> middle = mean_of(p, v), offset = mean_of(p, k);
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int row = 0; row < p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            const float* const from = k + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += q[at + d] * from[d];
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        out.assign(p.head_dim, 0.0f);
        for (int key = 0; key < keys; ++key) {
            const float* const from = v + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * (from[d] - middle[d]);
        }
        for (int d = 0; d < p.head_dim; ++d) o[at + d] = out[d] / sum + offset[d];
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
