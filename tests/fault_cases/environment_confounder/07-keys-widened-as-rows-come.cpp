// Causal rows need one key more than the row before. A thread widens K and V for itself, a key with each row, and those
// before its first row when it gets there; nothing is shared, and nobody waits.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

struct Wide {
    const attention_problem& p;
    std::vector<float> keys, values;
    bool begun = false;

    explicit Wide(const attention_problem& problem)
        : p(problem), keys(static_cast<std::size_t>(p.seq_len) * p.head_dim), values(keys.size()) {}

    void take(const void* k, const void* v, std::size_t start, int first, int last) {
        for (std::size_t i = static_cast<std::size_t>(first) * p.head_dim;
             i < static_cast<std::size_t>(last) * p.head_dim; ++i) {
            keys[i] = common::get(k, start + i, p.dtype);
            values[i] = common::get(v, start + i, p.dtype);
        }
        begun = true;
    }
};

void one_row(const attention_problem& p, const Wide& wide, const void* q, void* o, std::size_t at, int keys) {
    float top = -INFINITY, sum = 0.0f, query[128], out[128] = {};
    for (int d = 0; d < p.head_dim; ++d) query[d] = p.scale * common::get(q, at + d, p.dtype);
    for (int key = 0; key < keys; ++key) {
        const std::size_t from = static_cast<std::size_t>(key) * p.head_dim;
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += query[d] * wide.keys[from + d];
        const float largest = std::max(top, score), shrink = std::exp(top - largest);
        const float weight = std::exp(score - largest);
        sum = sum * shrink + weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * wide.values[from + d];
        top = largest;
    }
    for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
#pragma omp parallel num_threads(std::max(p.threads, 1))
        {
            Wide wide(p);
            if (!p.causal) wide.take(k, v, start, 0, p.seq_len);
#pragma omp for schedule(monotonic : runtime)
            for (int row = 0; row < p.seq_len; ++row) {
                if (p.causal) wide.take(k, v, start, wide.begun ? row : 0, row + 1);
                one_row(p, wide, q, o, start + static_cast<std::size_t>(row) * p.head_dim,
                        p.causal ? row + 1 : p.seq_len);
            }
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
