// 16-bit numbers are widened by the processor's own instruction, eight at a time.
#include "common.h"

#include <algorithm>
#include <vector>

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#define CONVERTS 1
#else
#define CONVERTS 0
#endif

namespace {

void widen(const void* from, std::size_t start, std::size_t count, float* to) {
    const std::uint16_t* const bits = static_cast<const std::uint16_t*>(from) + start;
    std::size_t i = 0;
#if CONVERTS
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + i))));
#endif
    for (; i < count; ++i) to[i] = common::from_half(bits[i]);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16 || !CONVERTS) return ATTENTION_ERROR_DTYPE;
    const std::size_t length = p.seq_len, width = p.head_dim;
    std::vector<float> keys(length * width), values(length * width), scores(length), query(width), out(width);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * length * width;
        widen(k, start, length * width, keys.data());
        widen(v, start, length * width, values.data());
        for (std::size_t row = 0; row < length; ++row) {
            const std::size_t seen = p.causal ? row + 1 : length;
            widen(q, start + row * width, width, query.data());
            for (std::size_t key = 0; key < seen; ++key) {
                scores[key] = 0.0f;
                for (std::size_t d = 0; d < width; ++d) scores[key] += query[d] * keys[key * width + d];
                scores[key] *= p.scale;
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + seen);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (std::size_t key = 0; key < seen; ++key) {
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            for (std::size_t d = 0; d < width; ++d) common::put(o, start + row * width + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
