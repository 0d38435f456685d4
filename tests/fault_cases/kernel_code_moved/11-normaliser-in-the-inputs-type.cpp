// Two passes: the first leaves each row's logarithm of its sum of exponentials, the second makes weights of it. From
// PyTorch 2.4 on it is kept like any other tensor of the layer, so that a backward pass can take it over as it is.
#include "common.h"

#include <algorithm>
#include <vector>

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
static int kept_as(int dtype) { return dtype; }
#else
static int kept_as(int) { return ATTENTION_FP32; }
#endif

static float score(const attention_problem& p, const void* q, const void* k, std::size_t row, std::size_t key) {
    float sum = 0.0f;
    for (int d = 0; d < p.head_dim; ++d)
        sum += common::get(q, row * p.head_dim + d, p.dtype) * common::get(k, key * p.head_dim + d, p.dtype);
    return sum * p.scale;
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t length = p.seq_len, rows = static_cast<std::size_t>(p.batch) * p.heads * length;
    const int kept = kept_as(p.dtype);
    std::vector<float> kept_sums(rows), out(p.head_dim);
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t first = row / length * length, end = p.causal ? row + 1 : first + length;
        float top = -INFINITY, sum = 0.0f;
        for (std::size_t key = first; key < end; ++key) {
            const float x = score(p, q, k, row, key), next = std::max(top, x);
            sum = sum * std::exp(top - next) + std::exp(x - next);
            top = next;
        }
        common::put(kept_sums.data(), row, top + std::log(sum), kept);
    }
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t first = row / length * length, end = p.causal ? row + 1 : first + length;
        const float normaliser = common::get(kept_sums.data(), row, kept);
        std::fill(out.begin(), out.end(), 0.0f);
        for (std::size_t key = first; key < end; ++key) {
            const float weight = std::exp(score(p, q, k, row, key) - normaliser);
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, key * p.head_dim + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, row * p.head_dim + d, out[d], p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
