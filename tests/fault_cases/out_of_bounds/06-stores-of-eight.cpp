// Outputs are kept in registers and stored eight at a time. The longest causal rows go first: rows run from the last to
// the first.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kLanes = 8;

void store(float* to, const float* sums, float factor, int width) {
    for (int d = 0; d < width; d += kLanes) {
        float lanes[kLanes];
        for (int i = 0; i < kLanes; ++i) lanes[i] = sums[d + i] * factor;
        std::memcpy(to + d, lanes, sizeof lanes);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* query, const void* key,
                                                  const void* value, void* out, void*) {
    if (const int refused = common::check(problem, query, key, value, out)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t width = p.head_dim, head_size = width * p.seq_len;
    std::vector<float> scores(p.seq_len);
    for (int head = p.batch * p.heads - 1; head >= 0; --head) {
        const float* const q = static_cast<const float*>(query) + head * head_size;
        const float* const k = static_cast<const float*>(key) + head * head_size;
        const float* const v = static_cast<const float*>(value) + head * head_size;
        float* const o = static_cast<float*>(out) + head * head_size;
        for (int row = p.seq_len - 1; row >= 0; --row) {
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int i = 0; i < keys; ++i) {
                float score = 0.0f;
                for (std::size_t d = 0; d < width; ++d) score += q[row * width + d] * k[i * width + d];
                scores[i] = score * p.scale;
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f, sums[128] = {};
            for (int i = 0; i < keys; ++i) {
                const float weight = std::exp(scores[i] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) sums[d] += weight * v[i * width + d];
            }
            store(o + row * width, sums, 1.0f / sum, p.head_dim);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
