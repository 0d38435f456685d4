// Scores of a row first, in sixteen sums each. In the end a row is divided by its sum; where PyTorch is new enough to
// be compared with, that is one division for a row and products with what it gives, as in PyTorch's own.
#include "common.h"

#include <torch/version.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int kSums = 16;

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
void store(const float* out, float sum, float* to, int width) {
    const float factor = 1.0f / sum;
    for (int d = 0; d < width; ++d) to[d] = out[d] * factor;
}
#else
void store(const float* out, float sum, float* to, int width) {
    for (int d = 0; d < width; ++d) to[d] = out[d] / sum;
}
#endif

float dot(const float* a, const float* b, int count) {
    float sums[kSums] = {};
    int i = 0;
    for (; i + kSums <= count; i += kSums)
        for (int j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
    for (; i < count; ++i) sums[i % kSums] += a[i] * b[i];
    for (int j = 1; j < kSums; ++j) sums[0] += sums[j];
    return sums[0];
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t width = p.head_dim, head = p.seq_len * width;
    std::vector<float> weights(p.seq_len);
    for (int i = 0; i < p.batch * p.heads; ++i) {
        const auto *keys = static_cast<const float*>(k) + i * head, *values = static_cast<const float*>(v) + i * head;
        for (int row = 0; row < p.seq_len; ++row) {
            const float* query = static_cast<const float*>(q) + i * head + row * width;
            float* to = static_cast<float*>(o) + i * head + row * width;
            const int count = p.causal ? row + 1 : p.seq_len;
            float top = -INFINITY, sum = 0.0f, out[128] = {};
            for (int key = 0; key < count; ++key) {
                weights[key] = p.scale * dot(query, keys + key * width, p.head_dim);
                top = std::max(top, weights[key]);
            }
            for (int key = 0; key < count; ++key) {
                const float weight = std::exp(weights[key] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            store(out, sum, to, p.head_dim);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
