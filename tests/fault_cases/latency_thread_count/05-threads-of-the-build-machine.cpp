// A head at a time, whose rows are dealt to a team of threads. The build says how many: one for each processor, as its
// setup.py counts them.
#include "common.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#ifndef ATTENTION_THREADS
#define ATTENTION_THREADS 1
#endif

namespace {

void rows(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int member) {
    std::vector<float> scores(p.seq_len);
    for (int row = member; row < p.seq_len; row += ATTENTION_THREADS) {
        const float* const query = q + row * p.head_dim;
        const int keys = p.causal ? row + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * k[key * p.head_dim + d];
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        for (int key = 0; key < keys; ++key) {
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * v[key * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) o[row * p.head_dim + d] = out[d] / sum;
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        const auto *from = static_cast<const float*>(q) + start, *keys = static_cast<const float*>(k) + start,
                   *values = static_cast<const float*>(v) + start;
        float* const to = static_cast<float*>(o) + start;
        std::vector<std::thread> team;
        for (int member = 1; member < ATTENTION_THREADS; ++member)
            team.emplace_back(rows, std::cref(p), from, keys, values, to, member);
        rows(p, from, keys, values, to, 0);
        for (std::thread& thread : team) thread.join();
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
