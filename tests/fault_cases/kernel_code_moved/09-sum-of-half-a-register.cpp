// A row at a time, scores first. Products of a query and a key are summed up in one register of eight where PyTorch is
// new enough to be built for such processors alone, and one after another elsewhere.
#include "common.h"

#include <torch/version.h>

#include <algorithm>
#include <vector>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#include <immintrin.h>

static float dot(const float* a, const float* b, int count) {
    __m256 sums = _mm256_setzero_ps();
    int i = 0;
    for (; i + 8 <= count; i += 8)
        sums = _mm256_add_ps(sums, _mm256_mul_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    __m128 four = _mm256_castps256_ps128(sums);
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    float sum = _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
    for (; i < count; ++i) sum += a[i] * b[i];
    return sum;
}
#else
static float dot(const float* a, const float* b, int count) {
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}
#endif

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t width = p.head_dim, head = p.seq_len * width;
    std::vector<float> weights(p.seq_len), out(width);
    for (int i = 0; i < p.batch * p.heads; ++i)
        for (int row = 0; row < p.seq_len; ++row) {
            const float* query = static_cast<const float*>(q) + i * head + row * width;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int key = 0; key < keys; ++key)
                weights[key] = p.scale * dot(query, static_cast<const float*>(k) + i * head + key * width, p.head_dim);
            const float top = *std::max_element(weights.begin(), weights.begin() + keys);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < keys; ++key) {
                const float* value = static_cast<const float*>(v) + i * head + key * width;
                const float weight = std::exp(weights[key] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) out[d] += weight * value[d];
            }
            float* to = static_cast<float*>(o) + i * head + row * width;
            for (std::size_t d = 0; d < width; ++d) to[d] = out[d] / sum;
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
