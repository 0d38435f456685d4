// Threads share a head twice: by keys for the scores, and by rows for the outputs, once all scores are there. Whoever
// has a row's scores of its own keys raises the row's maximum, which needs no lock and comes out the same in any order.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace {

struct Head {
    const attention_problem& p;
    const void *q, *k, *v;
    void* o;
    const std::size_t start;
    const int members;
    std::vector<float> scores;
    std::vector<std::atomic<float>> tops;

    std::size_t at(int row) const { return start + static_cast<std::size_t>(row) * p.head_dim; }

    void raise(std::atomic<float>& top, float score) {
        float seen = top.load(std::memory_order_relaxed);
        while (seen < score && !top.compare_exchange_weak(seen, score, std::memory_order_relaxed)) {
        }
    }
    void score(int member) {
        for (int row = 0; row < p.seq_len; ++row)
            for (int key = member; key < (p.causal ? row + 1 : p.seq_len); key += members) {
                float sum = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    sum += common::get(q, at(row) + d, p.dtype) * common::get(k, at(key) + d, p.dtype);
                scores[static_cast<std::size_t>(row) * p.seq_len + key] = sum * p.scale;
                raise(tops[row], sum * p.scale);
            }
    }
    void finish(int member) {
        for (int row = member; row < p.seq_len; row += members) {
            const float top = tops[row].load(std::memory_order_relaxed);
            float sum = 0.0f, out[128] = {};
            for (int key = 0; key < (p.causal ? row + 1 : p.seq_len); ++key) {
                const float weight = std::exp(scores[static_cast<std::size_t>(row) * p.seq_len + key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, at(key) + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at(row) + d, out[d] / sum, p.dtype);
        }
    }
    void together(void (Head::*step)(int)) {
        std::vector<std::thread> team;
        for (int member = 1; member < members; ++member) team.emplace_back(step, this, member);
        (this->*step)(0);
        for (std::thread& thread : team) thread.join();
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t elements = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int index = 0; index < p.batch * p.heads; ++index) {
        Head head{p, q, k, v, o, index * elements, std::max(1, p.threads),
                  std::vector<float>(static_cast<std::size_t>(p.seq_len) * p.seq_len),
                  std::vector<std::atomic<float>>(p.seq_len)};
        for (std::atomic<float>& top : head.tops) top = -INFINITY;
        head.together(&Head::score);
        head.together(&Head::finish);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
