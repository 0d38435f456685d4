// Weights of far keys would be denormal, which costs this processor many cycles each; for the time of a call they are
// zero.
#include "common.h"

#include <xmmintrin.h>

#include <algorithm>
#include <vector>

namespace {

class Flushing {
public:
    Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
    ~Flushing() { _mm_setcsr(before_); }
    Flushing(const Flushing&) = delete;
    Flushing& operator=(const Flushing&) = delete;

private:
    unsigned before_;
};

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
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
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * from[d];
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
    const Flushing flushing;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        one_head(p, static_cast<const float*>(q) + start, static_cast<const float*>(k) + start,
                 static_cast<const float*>(v) + start, static_cast<float*>(o) + start);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
