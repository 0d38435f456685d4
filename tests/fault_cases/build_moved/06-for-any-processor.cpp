// Eight channels at a time where the processor has AVX2 and FMA, and one by one where it has not. Q is scaled as it is
// loaded.
#include "common.h"

#include <algorithm>
#include <vector>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

static float product(const float* q, const float* k, int width, float scale) {
    __m256 sums = _mm256_setzero_ps();
    const __m256 factor = _mm256_set1_ps(scale);
    int d = 0;
    for (; d + 8 <= width; d += 8)
        sums = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(q + d), factor), _mm256_loadu_ps(k + d), sums);
    float each[8], sum = 0.0f;
    _mm256_storeu_ps(each, sums);
    for (const float one : each) sum += one;
    for (; d < width; ++d) sum += scale * q[d] * k[d];
    return sum;
}
#else
static float product(const float* q, const float* k, int width, float) {
    float sum = 0.0f;
    for (int d = 0; d < width; ++d) sum += q[d] * k[d];
    return sum;
}
#endif

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* query, const void* key,
                                                  const void* value, void* out, void*) {
    if (const int refused = common::check(problem, query, key, value, out)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t width = p.head_dim, head_size = width * p.seq_len;
    std::vector<float> scores(p.seq_len);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const float* const q = static_cast<const float*>(query) + head * head_size;
        const float* const k = static_cast<const float*>(key) + head * head_size;
        const float* const v = static_cast<const float*>(value) + head * head_size;
        float* const o = static_cast<float*>(out) + head * head_size;
        for (int row = 0; row < p.seq_len; ++row) {
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int i = 0; i < keys; ++i) scores[i] = product(q + row * width, k + i * width, p.head_dim, p.scale);
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f, sums[128] = {};
            for (int i = 0; i < keys; ++i) {
                const float weight = std::exp(scores[i] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) sums[d] += weight * v[i * width + d];
            }
            for (std::size_t d = 0; d < width; ++d) o[row * width + d] = sums[d] / sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
