// Online softmax: one pass over keys and values, in which sums shrink where the maximum rises. Where PyTorch is built
// for wider processors even and odd keys have a state each, so that two exponentials are under way at once.
#include "common.h"

#include <algorithm>

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
#define ATTENTION_STATES 2
#else
#define ATTENTION_STATES 1
#endif

namespace {

struct State {
    float top = -INFINITY, sum = 0.0f, out[128] = {};

    void add(float score, const void* v, std::size_t from, const attention_problem& p) {
        const float risen = std::max(top, score), kept = std::exp(top - risen), weight = std::exp(score - risen);
        top = risen;
        sum = sum * kept + weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * kept + weight * common::get(v, from + d, p.dtype);
    }

    void join(const State& other, int head_dim) {
        const float share = other.sum > 0.0f ? std::exp(-std::abs(other.top - top)) : 0.0f;
        top = std::max(top, other.top);
        sum += share * other.sum;
        for (int d = 0; d < head_dim; ++d) out[d] += share * other.out[d];
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        State states[ATTENTION_STATES];
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            states[key % ATTENTION_STATES].add(score * p.scale, v, from, p);
        }
        for (int other = 1; other < ATTENTION_STATES; ++other) states[0].join(states[other], p.head_dim);
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, states[0].out[d] / states[0].sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
