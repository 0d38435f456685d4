// Keys in pieces of 32, which threads take one by one. Whoever has finished a piece of a head adds it to the head's
// running maximum, sum and outputs, under a lock.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr int kPiece = 32;

struct Job {
    const attention_problem& p;
    const float *q, *k, *v;
    float* o;
    int pieces;
    std::vector<float> top, sum;
    std::vector<std::mutex> locks;
    std::atomic<int> next{0};

    Job(const attention_problem& problem, const void* query, const void* key, const void* value, void* out)
        : p(problem), q(static_cast<const float*>(query)), k(static_cast<const float*>(key)),
          v(static_cast<const float*>(value)), o(static_cast<float*>(out)), pieces((p.seq_len + kPiece - 1) / kPiece),
          top(static_cast<std::size_t>(p.batch) * p.heads * p.seq_len, -INFINITY), sum(top.size(), 0.0f),
          locks(p.batch * p.heads) {
        std::fill_n(o, top.size() * p.head_dim, 0.0f);
    }

    void run() {
        for (int task; (task = next.fetch_add(1)) < p.batch * p.heads * pieces;) piece(task / pieces, task % pieces);
    }

    void piece(int head, int part) {
        const std::size_t width = p.head_dim, first = static_cast<std::size_t>(head) * p.seq_len;
        const int begin = part * kPiece, end = std::min(p.seq_len, begin + kPiece);
        std::vector<float> tops(p.seq_len, -INFINITY), sums(p.seq_len, 0.0f), outs(p.seq_len * width, 0.0f);
        for (int row = p.causal ? begin : 0; row < p.seq_len; ++row) {
            float scores[kPiece];
            const int last = p.causal ? std::min(end, row + 1) : end;
            for (int key = begin; key < last; ++key) {
                float score = 0.0f;
                for (std::size_t d = 0; d < width; ++d) score += q[(first + row) * width + d] * k[(first + key) * width + d];
                scores[key - begin] = score * p.scale;
                tops[row] = std::max(tops[row], scores[key - begin]);
            }
            for (int key = begin; key < last; ++key) {
                const float weight = std::exp(scores[key - begin] - tops[row]);
                sums[row] += weight;
                for (std::size_t d = 0; d < width; ++d) outs[row * width + d] += weight * v[(first + key) * width + d];
            }
        }
        const std::lock_guard<std::mutex> lock(locks[head]);
        for (int row = p.causal ? begin : 0; row < p.seq_len; ++row) {
            float &most = top[first + row], &all = sum[first + row];
            const float higher = std::max(most, tops[row]);
            const float old = std::exp(most - higher), fresh = std::exp(tops[row] - higher);
            all = all * old + sums[row] * fresh;
            for (std::size_t d = 0; d < width; ++d) {
                float& out = o[(first + row) * width + d];
                out = out * old + outs[row * width + d] * fresh;
            }
            most = higher;
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
    for (std::size_t row = 0; row < job.sum.size(); ++row)
        for (int d = 0; d < problem->head_dim; ++d) job.o[row * problem->head_dim + d] /= job.sum[row];
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
