// Rows are shared out evenly: each thread takes a contiguous piece of them, this one the first.
#include "common.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

static void run(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int first,
                int last) {
    std::vector<float> scores(p.seq_len);
    for (int row = first; row < last; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const float *from = q + static_cast<std::size_t>(row) * p.head_dim, *keys_of = k + start;
        const float* values_of = v + start;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += from[d] * keys_of[key * p.head_dim + d];
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        for (int key = 0; key < keys; ++key) {
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * values_of[key * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) o[static_cast<std::size_t>(row) * p.head_dim + d] = out[d] / sum;
    }
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const int workers = std::max(1, p.threads), share = p.batch * p.heads * p.seq_len / workers;
    const auto *from = static_cast<const float*>(q), *keys = static_cast<const float*>(k),
               *values = static_cast<const float*>(v);
    std::vector<std::thread> team;
    for (int worker = 1; worker < workers; ++worker)
        team.emplace_back(run, std::cref(p), from, keys, values, static_cast<float*>(o), worker * share,
                          (worker + 1) * share);
    run(p, from, keys, values, static_cast<float*>(o), 0, share);
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
