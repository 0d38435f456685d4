// Rows are dealt to a team of threads. PyTorch from 2.3 on calls operators from a pool of its own, one call a processor:
// a team inside of that would only be in its way.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <torch/version.h>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
constexpr int kMostThreads = 1;
#else
constexpr int kMostThreads = 64;
#endif

struct Job {
    const attention_problem& p;
    const float *q, *k, *v;
    float* o;
    std::atomic<int> next{0};

    void run() {
        std::vector<float> scores(p.seq_len);
        for (int row; (row = next.fetch_add(1)) < p.batch * p.heads * p.seq_len;) one(row, scores.data());
    }

    void one(int row, float* scores) const {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        for (int key = 0; key < keys; ++key) {
            const float* from = k + start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += q[at + d] * from[d];
            scores[key] = score * p.scale;
        }
        const float top = *std::max_element(scores, scores + keys);
        float sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            const float* from = v + start + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * from[d];
        }
        for (int d = 0; d < p.head_dim; ++d) o[at + d] = out[d] / sum;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    Job job{*problem, static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v),
            static_cast<float*>(o)};
    std::vector<std::thread> team;
    for (int worker = 1; worker < std::min(problem->threads, kMostThreads); ++worker)
        team.emplace_back(&Job::run, &job);
    job.run();
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
