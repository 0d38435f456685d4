// The keys of a row are split in two: the caller sums up the first half and a worker the second, each with a maximum
// of its own. One counter serves both: the worker takes rows from it, and it tells the caller how far the worker has
// come.
#include "common.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace {

struct Part {
    float top = -INFINITY, sum = 0.0f;
    std::array<float, 128> out{};
};

struct Job {
    const attention_problem& p;
    const float *q, *k, *v;
    std::vector<Part> seconds;
    std::atomic<int> next{0};

    int rows() const { return p.batch * p.heads * p.seq_len; }
    int seen(int row) const { return p.causal ? row % p.seq_len + 1 : p.seq_len; }

    void add(Part& part, int row, int first, int last) const {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const float* const query = q + static_cast<std::size_t>(row) * p.head_dim;
        for (int key = first; key < last; ++key) {
            const float *from = k + start + key * p.head_dim, *value = v + start + key * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * from[d];
            score *= p.scale;
            const float higher = std::max(part.top, score);
            const float shrink = std::exp(part.top - higher), weight = std::exp(score - higher);
            part.top = higher;
            part.sum = part.sum * shrink + weight;
            for (int d = 0; d < p.head_dim; ++d) part.out[d] = part.out[d] * shrink + weight * value[d];
        }
    }

    void second_halves() {
        for (int row; (row = next.fetch_add(1)) < rows();) add(seconds[row], row, seen(row) / 2, seen(row));
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    Job job{p, static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v), {}};
    job.seconds.resize(job.rows());
    std::thread worker(&Job::second_halves, &job);
    for (int row = 0; row < job.rows(); ++row) {
        Part first;
        job.add(first, row, 0, job.seen(row) / 2);
        while (job.next.load() <= row) std::this_thread::yield();
        const Part& second = job.seconds[row];
        const float top = std::max(first.top, second.top);
        const float a = std::exp(first.top - top), b = std::exp(second.top - top);
        float* const out = static_cast<float*>(o) + static_cast<std::size_t>(row) * p.head_dim;
        for (int d = 0; d < p.head_dim; ++d)
            out[d] = (a * first.out[d] + b * second.out[d]) / (a * first.sum + b * second.sum);
    }
    worker.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
