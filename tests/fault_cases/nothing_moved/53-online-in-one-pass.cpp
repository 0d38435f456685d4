// Scores first and then weights, in two passes over the keys. For PyTorch from 2.3 on, where longer sequences are
// asked for, one pass: sums and outputs shrink by what the maximum rises, and a row needs no room for its scores.
#include "common.h"

#include <algorithm>
#include <vector>

#include <torch/version.h>

namespace {

struct Row {
    const attention_problem& p;
    const void *q, *k, *v;
    std::size_t at, start;

    float score(int key) const {
        float sum = 0.0f;
        for (int d = 0; d < p.head_dim; ++d)
            sum += common::get(q, at + d, p.dtype) * common::get(k, from(key) + d, p.dtype);
        return sum * p.scale;
    }
    std::size_t from(int key) const { return start + static_cast<std::size_t>(key) * p.head_dim; }

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    float run(int keys, float* out) const {
        float top = score(0), sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            const float mine = score(key), risen = std::max(top, mine);
            if (risen > top) {
                const float kept = std::exp(top - risen);
                sum *= kept;
                for (int d = 0; d < p.head_dim; ++d) out[d] *= kept;
                top = risen;
            }
            const float weight = std::exp(mine - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from(key) + d, p.dtype);
        }
        return sum;
    }
#else
    float run(int keys, float* out) const {
        std::vector<float> scores(keys);
        for (int key = 0; key < keys; ++key) scores[key] = score(key);
        const float top = *std::max_element(scores.begin(), scores.end());
        float sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from(key) + d, p.dtype);
        }
        return sum;
    }
#endif
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> out(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        std::fill(out.begin(), out.end(), 0.0f);
        const float sum = Row{p, q, k, v, at, start}.run(p.causal ? row % p.seq_len + 1 : p.seq_len, out.data());
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
