// Which keys a row sees is a list of where they lie, so that the loops know nothing of masks. Lists are short: an entry
// has two bytes, and the whole list stays in the first cache.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

std::vector<std::uint16_t> seen(const attention_problem& p) {
    std::vector<std::uint16_t> list(p.seq_len);
    for (int key = 0; key < p.seq_len; ++key) list[key] = static_cast<std::uint16_t>(key * p.head_dim);
    return list;
}

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o,
             const std::uint16_t* list, int keys, std::vector<float>& weights) {
    float top = -INFINITY, sum = 0.0f, out[128] = {};
    for (int i = 0; i < keys; ++i) {
        const float* key = k + list[i];
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * key[d];
        weights[i] = score * p.scale;
        top = std::max(top, weights[i]);
    }
    for (int i = 0; i < keys; ++i) {
        const float weight = std::exp(weights[i] - top);
        const float* value = v + list[i];
        sum += weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] += weight * value[d];
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::vector<std::uint16_t> list = seen(p);
    std::vector<float> weights(p.seq_len);
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int i = 0; i < p.batch * p.heads; ++i)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = i * head + static_cast<std::size_t>(row) * p.head_dim;
            one_row(p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + i * head,
                    static_cast<const float*>(v) + i * head, static_cast<float*>(o) + at, list.data(),
                    p.causal ? row + 1 : p.seq_len, weights);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
