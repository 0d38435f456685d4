// Each thread has a run of rows that lie together, the caller among them; a thread's scores are its own.
#include "common.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace {

struct Job {
    const attention_problem& p;
    const float *q, *k, *v;
    float* o;

    void run(int first, int last) const {
        std::vector<float> scores(p.seq_len);
        for (int row = first; row < last; ++row) one(row, scores);
    }

    void one(int row, std::vector<float>& scores) const {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        for (int key = 0; key < keys; ++key) {
            const float* const from = k + start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += q[at + d] * from[d];
            scores[key] = score * p.scale;
        }
        const float top = *std::max_element(scores.begin(), scores.begin() + keys);
        float sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            const float* const from = v + start + static_cast<std::size_t>(key) * p.head_dim;
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
    const Job job{*problem, static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v),
                  static_cast<float*>(o)};
    const int rows = problem->batch * problem->heads * problem->seq_len;
    const int members = std::clamp(problem->threads, 1, rows), each = (rows + members - 1) / members;
    std::vector<std::thread> team;
    for (int first = each; first < rows; first += each)
        team.emplace_back(&Job::run, &job, first, std::min(rows, first + each));
    job.run(0, std::min(rows, each));
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
