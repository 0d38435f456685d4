// Two loops over a head's rows, weights and then outputs. Both are shared out alike, in equal parts and by the same
// team, so that a thread finds the weights of its rows where it left them, and nobody waits in between.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

void weights_of(const attention_problem& p, const float* q, const float* k, float* weights, int keys) {
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < keys; ++key) {
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * k[static_cast<std::size_t>(key) * p.head_dim + d];
        weights[key] = score * p.scale;
        top = std::max(top, weights[key]);
    }
    for (int key = 0; key < keys; ++key) sum += weights[key] = std::exp(weights[key] - top);
    for (int key = 0; key < keys; ++key) weights[key] /= sum;
}

void output_of(const attention_problem& p, const float* weights, const float* v, float* o, int keys) {
    float out[128] = {};
    for (int key = 0; key < keys; ++key)
        for (int d = 0; d < p.head_dim; ++d) out[d] += weights[key] * v[static_cast<std::size_t>(key) * p.head_dim + d];
    std::copy(out, out + p.head_dim, o);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t rows = p.seq_len, width = p.head_dim;
    std::vector<float> weights(rows * rows);
#pragma omp parallel num_threads(std::max(p.threads, 1))
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * rows * width;
#pragma omp for schedule(static) nowait
        for (int row = 0; row < p.seq_len; ++row)
            weights_of(p, static_cast<const float*>(q) + start + row * width, static_cast<const float*>(k) + start,
                       weights.data() + row * rows, p.causal ? row + 1 : p.seq_len);
#pragma omp for schedule(static) nowait
        for (int row = 0; row < p.seq_len; ++row)
            output_of(p, weights.data() + row * rows, static_cast<const float*>(v) + start,
                      static_cast<float*>(o) + start + row * width, p.causal ? row + 1 : p.seq_len);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
