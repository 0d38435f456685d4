// One pass, and no rescaling: what is taken off all scores of a row is its score with its own key, which is at hand
// before the pass begins. It cancels in the quotient, whatever it is.
#include "common.h"

#include <vector>

namespace {

float product(const void* a, std::size_t first, const void* b, std::size_t second, const attention_problem& p) {
    float sum = 0.0f;
    for (int d = 0; d < p.head_dim; ++d)
        sum += common::get(a, first + d, p.dtype) * common::get(b, second + d, p.dtype);
    return sum * p.scale;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> out(p.head_dim);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(index % p.seq_len) * p.head_dim;
        const int keys = p.causal ? index % p.seq_len + 1 : p.seq_len;
        const float own = product(q, at, k, at, p);
        float sum = 0.0f;
        out.assign(p.head_dim, 0.0f);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = std::exp(product(q, at, k, from, p) - own);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
