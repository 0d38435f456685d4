// Eight keys at a time against one row, whose sums are apart, so that they fill a wide register; one thread.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kKeys = 8;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const int groups = (p.seq_len + kKeys - 1) / kKeys;
    // By group, channel, key; keys beyond the last are zero.
    std::vector<float> turned(static_cast<std::size_t>(groups) * p.head_dim * kKeys);
    std::vector<float> scores(static_cast<std::size_t>(groups) * kKeys);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        const float *keys_of = static_cast<const float*>(k) + start, *values_of = static_cast<const float*>(v) + start;
        std::fill(turned.begin(), turned.end(), 0.0f);
        for (int key = 0; key < p.seq_len; ++key)
            for (int d = 0; d < p.head_dim; ++d)
                turned[(static_cast<std::size_t>(key / kKeys) * p.head_dim + d) * kKeys + key % kKeys] =
                    keys_of[static_cast<std::size_t>(key) * p.head_dim + d];
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const float* const query = static_cast<const float*>(q) + at;
            float* const out = static_cast<float*>(o) + at;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int group = 0; group * kKeys < keys; ++group) {
                const float* const from = turned.data() + static_cast<std::size_t>(group) * p.head_dim * kKeys;
                float sums[kKeys] = {};
                for (int d = 0; d < p.head_dim; ++d)
                    for (int i = 0; i < kKeys; ++i) sums[i] += query[d] * from[d * kKeys + i];
                for (int i = 0; i < kKeys; ++i) scores[group * kKeys + i] = sums[i] * p.scale;
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f;
            std::fill(out, out + p.head_dim, 0.0f);
            for (int key = 0; key < keys; ++key) {
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * values_of[key * p.head_dim + d];
            }
            for (int d = 0; d < p.head_dim; ++d) out[d] /= sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
