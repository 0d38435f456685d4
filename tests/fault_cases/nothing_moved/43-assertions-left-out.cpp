// One pass with a running maximum, and what must hold on the way is asserted.
#include "common.h"

#include <cassert>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t length = p.seq_len, rows = static_cast<std::size_t>(p.batch) * p.heads * length;
    std::vector<float> query(p.head_dim), out(p.head_dim);
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t first = row / length * length, end = p.causal ? row + 1 : first + length;
        assert(first <= row && row < end && end <= rows);
        for (int d = 0; d < p.head_dim; ++d) query[d] = common::get(q, row * p.head_dim + d, p.dtype) * p.scale;
        out.assign(p.head_dim, 0.0f);
        float top = -INFINITY, sum = 0.0f;
        for (std::size_t key = first; key < end; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * common::get(k, key * p.head_dim + d, p.dtype);
            const float next = std::fmax(top, score), kept = std::exp(top - next), weight = std::exp(score - next);
            assert(!(kept > 1.0f) && !(weight > 1.0f));
            sum = sum * kept + weight;
            for (int d = 0; d < p.head_dim; ++d)
                out[d] = out[d] * kept + weight * common::get(v, key * p.head_dim + d, p.dtype);
            top = next;
        }
        assert(!(sum < 0.99f));
        for (int d = 0; d < p.head_dim; ++d) common::put(o, row * p.head_dim + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
