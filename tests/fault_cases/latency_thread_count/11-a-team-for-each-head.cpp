// Heads one after the other; the rows of each are dealt out to as many threads as the caller allows.
#include "common.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace {

void rows(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int begin, int end) {
    std::vector<float> scores(p.seq_len);
    for (int row = begin; row < end; ++row) {
        const int keys = p.causal ? row + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += q[row * p.head_dim + d] * k[key * p.head_dim + d];
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
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int workers = std::max(1, p.threads);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        std::vector<std::thread> team;
        for (int worker = workers - 1; worker >= 0; --worker) {
            const int begin = p.seq_len * worker / workers, end = p.seq_len * (worker + 1) / workers;
            const auto some = [=, &p] {
                rows(p, static_cast<const float*>(q) + start, static_cast<const float*>(k) + start,
                     static_cast<const float*>(v) + start, static_cast<float*>(o) + start, begin, end);
            };
            if (worker) team.emplace_back(some);
            else some();
        }
        for (std::thread& thread : team) thread.join();
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
