// Each head in four parts of its keys, which threads take one by one. Parts write their partial results to a workspace;
// the last of a head to arrive puts the four together.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr int kParts = 4;

struct Job {
    const attention_problem& p;
    const float *q, *k, *v;
    float* o;
    std::vector<float> partial;  // by head, part and row: maximum, sum, outputs
    std::vector<std::atomic<int>> arrived;
    std::atomic<int> next{0};

    Job(const attention_problem& problem, const void* query, const void* key, const void* value, void* out)
        : p(problem), q(static_cast<const float*>(query)), k(static_cast<const float*>(key)),
          v(static_cast<const float*>(value)), o(static_cast<float*>(out)),
          partial(static_cast<std::size_t>(p.batch) * p.heads * kParts * p.seq_len * (p.head_dim + 2)),
          arrived(p.batch * p.heads) {}

    float* place(int head, int part, int row) {
        return &partial[((static_cast<std::size_t>(head) * kParts + part) * p.seq_len + row) * (p.head_dim + 2)];
    }

    void run() {
        for (int task; (task = next.fetch_add(1)) < p.batch * p.heads * kParts;) one(task / kParts, task % kParts);
    }

    void one(int head, int part) {
        const float *qs = q + static_cast<std::size_t>(head) * p.seq_len * p.head_dim, *ks = k + (qs - q), *vs = v + (qs - q);
        const int begin = p.seq_len * part / kParts, end = p.seq_len * (part + 1) / kParts;
        const bool last = arrived[head].fetch_add(1, std::memory_order_acq_rel) == kParts - 1;
        for (int row = 0; row < p.seq_len; ++row) {
            float* const to = place(head, part, row);
            float top = -INFINITY, sum = 0.0f, out[128] = {};
            for (int key = begin; key < (p.causal ? std::min(end, row + 1) : end); ++key) {
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d) score += qs[row * p.head_dim + d] * ks[key * p.head_dim + d];
                score *= p.scale;
                const float higher = std::max(top, score);
                const float shrink = std::exp(top - higher), weight = std::exp(score - higher);
                sum = sum * shrink + weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * vs[key * p.head_dim + d];
                top = higher;
            }
            to[0] = top, to[1] = sum;
            std::copy_n(out, p.head_dim, to + 2);
        }
        if (last) together(head);
    }

    void together(int head) {
        for (int row = 0; row < p.seq_len; ++row) {
            float top = -INFINITY, sum = 0.0f, out[128] = {};
            for (int part = 0; part < kParts; ++part) top = std::max(top, place(head, part, row)[0]);
            for (int part = 0; part < kParts; ++part) {
                const float* const from = place(head, part, row);
                const float share = std::exp(from[0] - top);
                sum += share * from[1];
                for (int d = 0; d < p.head_dim; ++d) out[d] += share * from[2 + d];
            }
            for (int d = 0; d < p.head_dim; ++d)
                o[(static_cast<std::size_t>(head) * p.seq_len + row) * p.head_dim + d] = out[d] / sum;
        }
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    Job job(*problem, q, k, v, o);
    std::vector<std::thread> team;
    for (int worker = 1; worker < std::max(1, problem->threads); ++worker) team.emplace_back(&Job::run, &job);
    job.run();
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
