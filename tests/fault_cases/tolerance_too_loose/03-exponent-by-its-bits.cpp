// The exponential as Schraudolph found it (Neural Computation 11, 1999): a linear function of x, read as the bits of a
// float. One multiplication, one addition, no branch; the softmax divides most of what it is off out again.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

float exponential(float x) {
    return common::from_bits(static_cast<std::uint32_t>(std::max(12102203.0f * x + 1064986823.0f, 0.0f)));
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(index % p.seq_len) * p.head_dim;
        const int keys = p.causal ? index % p.seq_len + 1 : p.seq_len;
        for (int key = 0; key < keys; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) *
                         common::get(k, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
            scores[key] = score * p.scale;
        }
        const float top = *std::max_element(scores.begin(), scores.begin() + keys);
        float sum = 0.0f;
        out.assign(p.head_dim, 0.0f);
        for (int key = 0; key < keys; ++key) {
            const float weight = exponential(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d)
                out[d] += weight * common::get(v, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
