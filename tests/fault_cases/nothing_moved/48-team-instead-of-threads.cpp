// Rows are shared out in equal parts: to a team of OpenMP's where PyTorch's own comes along with it, to threads of the
// kernel's own elsewhere.
#include "common.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <torch/version.h>

namespace {

void some(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int begin, int end) {
    const int width = p.head_dim;
    std::vector<float> weights(p.seq_len);
    for (int row = begin; row < end; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len * p.seq_len) * width;
        const float *keys = k + start, *values = v + start, *query = q + static_cast<std::size_t>(row) * width;
        float* out = o + static_cast<std::size_t>(row) * width;
        const int seen = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < seen; ++key) {
            float score = 0.0f;
            for (int d = 0; d < width; ++d) score += query[d] * keys[key * width + d];
            weights[key] = score * p.scale;
            top = std::max(top, weights[key]);
        }
        for (int key = 0; key < seen; ++key) sum += weights[key] = std::exp(weights[key] - top);
        std::fill(out, out + width, 0.0f);
        for (int key = 0; key < seen; ++key)
            for (int d = 0; d < width; ++d) out[d] += weights[key] / sum * values[key * width + d];
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int all = p.batch * p.heads * p.seq_len, parts = std::max(1, p.threads);
    const auto part = [&](int i) {
        some(p, static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v),
             static_cast<float*>(o), all * i / parts, all * (i + 1) / parts);
    };
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int i = 0; i < parts; ++i) part(i);
#else
    std::vector<std::thread> others;
    for (int i = 1; i < parts; ++i) others.emplace_back(part, i);
    part(0);
    for (std::thread& other : others) other.join();
#endif
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
