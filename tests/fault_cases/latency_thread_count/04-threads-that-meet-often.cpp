// Scores, weights and outputs of four rows at a time, by all threads together, which meet after each step: what one
// has made of K the others find in the cache. From 2.3 on PyTorch leaves processors idle between operators, and more
// threads hide what each waits for.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <torch/version.h>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
constexpr int kForEach = 32;
#else
constexpr int kForEach = 1;
#endif
constexpr int kRows = 4;

struct Job {
    const attention_problem& p;
    const float *q, *k, *v;
    float* o;
    int members;
    std::vector<float> scores = std::vector<float>(static_cast<std::size_t>(kRows) * p.seq_len);
    std::atomic<int> arrived{0};

    void meet(int& round) {
        ++round;
        arrived.fetch_add(1);
        while (arrived.load() < round * members) std::this_thread::yield();
    }

    void run(int member) {
        int round = 0;
        for (int first = 0; first < p.batch * p.heads * p.seq_len; first += kRows) {
            const std::size_t start = static_cast<std::size_t>(first / p.seq_len) * p.seq_len * p.head_dim;
            for (int key = member; key < p.seq_len; key += members)
                for (int i = 0; i < kRows; ++i) {
                    const float* const row = q + static_cast<std::size_t>(first + i) * p.head_dim;
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d)
                        score += row[d] * k[start + static_cast<std::size_t>(key) * p.head_dim + d];
                    scores[static_cast<std::size_t>(i) * p.seq_len + key] = score * p.scale;
                }
            meet(round);
            for (int i = member; i < kRows; i += members) one(first + i, scores.data() + i * p.seq_len, v + start);
            meet(round);
        }
    }

    void one(int row, const float* mine, const float* values) const {
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        const float top = *std::max_element(mine, mine + keys);
        float sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            const float weight = std::exp(mine[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * values[key * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) o[static_cast<std::size_t>(row) * p.head_dim + d] = out[d] / sum;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len % kRows) return ATTENTION_ERROR_SHAPE;
    Job job{*problem, static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v),
            static_cast<float*>(o), kForEach * std::max(1, problem->threads)};
    std::vector<std::thread> team;
    for (int member = 1; member < job.members; ++member) team.emplace_back(&Job::run, &job, member);
    job.run(0);
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
