// Threads go through the heads together and take rows of one as they get there. K and V of a head become fp32 once:
// whoever comes to it first does that.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

struct Head {
    std::vector<float> keys, values;
    std::atomic<bool> taken{false};
    std::atomic<int> next{0};
};

void one_row(const attention_problem& p, const Head& head, const void* q, void* o, std::size_t at, int keys) {
    float top = -INFINITY, sum = 0.0f, query[128], out[128] = {};
    for (int d = 0; d < p.head_dim; ++d) query[d] = p.scale * common::get(q, at + d, p.dtype);
    for (int key = 0; key < keys; ++key) {
        const std::size_t from = static_cast<std::size_t>(key) * p.head_dim;
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += query[d] * head.keys[from + d];
        const float largest = std::max(top, score), shrink = std::exp(top - largest);
        const float weight = std::exp(score - largest);
        sum = sum * shrink + weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * head.values[from + d];
        top = largest;
    }
    for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
}

void work(const attention_problem& p, std::vector<Head>& heads, const void* q, const void* k, const void* v, void* o) {
    const std::size_t size = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (std::size_t i = 0; i < heads.size(); ++i) {
        Head& head = heads[i];
        if (!head.taken.exchange(true))
            for (std::size_t j = 0; j < size; ++j) {
                head.keys[j] = common::get(k, i * size + j, p.dtype);
                head.values[j] = common::get(v, i * size + j, p.dtype);
            }
        for (int row = head.next++; row < p.seq_len; row = head.next++)
            one_row(p, head, q, o, i * size + static_cast<std::size_t>(row) * p.head_dim,
                    p.causal ? row + 1 : p.seq_len);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<Head> heads(p.batch * p.heads);
    for (Head& head : heads) {
        head.keys.resize(static_cast<std::size_t>(p.seq_len) * p.head_dim);
        head.values.resize(head.keys.size());
    }
    std::vector<std::thread> others;
    for (int i = 1; i < p.threads; ++i) others.emplace_back([&] { work(p, heads, q, k, v, o); });
    work(p, heads, q, k, v, o);
    for (std::thread& other : others) other.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
