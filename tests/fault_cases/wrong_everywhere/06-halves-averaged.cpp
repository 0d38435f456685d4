// Keys in two parts, each with a softmax of its own, so that a part's scores stay in the cache; the parts' outputs are
// put together at the end, each by its share.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

struct Head {
    const attention_problem& p;
    const void *q, *k, *v;
    std::size_t start;
    std::vector<float> scores;

    // Adds `share` times the attention of `row` over the keys from `first` to `last`.
    void part(int row, int first, int last, float share, float* out) {
        const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
        for (int key = first; key < last; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            scores[key] = score * p.scale;
        }
        const float top = *std::max_element(scores.begin() + first, scores.begin() + last);
        float sum = 0.0f;
        for (int key = first; key < last; ++key) sum += scores[key] = std::exp(scores[key] - top);
        for (int key = first; key < last; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = scores[key] / sum * share;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int i = 0; i < p.batch * p.heads; ++i) {
        Head head{p, q, k, v, static_cast<std::size_t>(i) * p.seq_len * p.head_dim, std::vector<float>(p.seq_len)};
        for (int row = 0; row < p.seq_len; ++row) {
            const int keys = p.causal ? row + 1 : p.seq_len, middle = (keys + 1) / 2;
            float out[128] = {};
            head.part(row, 0, middle, static_cast<float>(middle) / keys, out);
            if (middle < keys) head.part(row, middle, keys, static_cast<float>(keys - middle) / keys, out);
            const std::size_t at = head.start + static_cast<std::size_t>(row) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d], p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
