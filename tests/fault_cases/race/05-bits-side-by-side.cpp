// Groups of four keys whose scores are all far below the row's maximum are left out of the second product. A bit for
// each row and group says which are kept; rows are handed to threads one by one.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr int kTile = 4;
constexpr float kFar = 40.0f;  // exp(-40) is nothing beside one, even 10,000 times

struct Job {
    const attention_problem& p;
    const float *q, *k, *v;
    float* o;
    int tiles;
    std::vector<bool> kept;
    std::atomic<int> next{0};

    Job(const attention_problem& problem, const void* query, const void* key, const void* value, void* out)
        : p(problem), q(static_cast<const float*>(query)), k(static_cast<const float*>(key)),
          v(static_cast<const float*>(value)), o(static_cast<float*>(out)), tiles((p.seq_len + kTile - 1) / kTile),
          kept(static_cast<std::size_t>(p.batch) * p.heads * p.seq_len * tiles) {}

    void run() {
        std::vector<float> scores(p.seq_len);
        for (int row; (row = next.fetch_add(1)) < p.batch * p.heads * p.seq_len;) one(row, scores.data());
    }

    void one(int row, float* scores) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
        const std::size_t bits = static_cast<std::size_t>(row) * tiles;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY;
        for (int tile = 0; tile * kTile < keys; ++tile) {
            float highest = -INFINITY;
            for (int key = tile * kTile; key < std::min(keys, (tile + 1) * kTile); ++key) {
                scores[key] = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    scores[key] += q[at + d] * k[start + static_cast<std::size_t>(key) * p.head_dim + d];
                scores[key] *= p.scale;
                highest = std::max(highest, scores[key]);
            }
            top = std::max(top, highest);
            kept[bits + tile] = highest > top - kFar;
        }
        float sum = 0.0f, out[128] = {};
        for (int key = 0; key < keys; ++key) {
            if (!kept[bits + key / kTile]) continue;
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d)
                out[d] += weight * v[start + static_cast<std::size_t>(key) * p.head_dim + d];
        }
        for (int d = 0; d < p.head_dim; ++d) o[at + d] = out[d] / sum;
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
