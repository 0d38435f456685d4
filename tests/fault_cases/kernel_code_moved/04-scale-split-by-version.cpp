// K of one head is converted to fp32 first; K that is fp32 already is read where it lies. PyTorch's own arithmetic
// gives the root of the scale to Q and to K since it takes a scale: both stay small, and so do we.
#include "common.h"

#include <torch/version.h>

#include <algorithm>
#include <vector>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
struct Factors {
    explicit Factors(float scale) : q(std::sqrt(scale)), k(q) {}
    float q, k;
};
#else
struct Factors {
    explicit Factors(float scale) : q(scale), k(1.0f) {}
    float q, k;
};
#endif

const float* converted(const void* tensor, std::size_t start, std::size_t count, int dtype, float factor,
                       std::vector<float>& room) {
    if (dtype == ATTENTION_FP32) return static_cast<const float*>(tensor) + start;
    room.resize(count);
    for (std::size_t i = 0; i < count; ++i) room[i] = common::get(tensor, start + i, dtype) * factor;
    return room.data();
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const Factors factors(p.scale);
    std::vector<float> room, query(p.head_dim), weights(p.seq_len), out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t rows = p.seq_len, size = rows * p.head_dim, start = head * size;
        const float* const keys_of = converted(k, start, size, p.dtype, factors.k, room);
        for (std::size_t row = 0; row < rows; ++row) {
            const std::size_t at = start + row * p.head_dim, keys = p.causal ? row + 1 : rows;
            for (int d = 0; d < p.head_dim; ++d) query[d] = common::get(q, at + d, p.dtype) * factors.q;
            for (std::size_t key = 0; key < keys; ++key) {
                weights[key] = 0.0f;
                for (int d = 0; d < p.head_dim; ++d) weights[key] += query[d] * keys_of[key * p.head_dim + d];
            }
            const float top = *std::max_element(weights.begin(), weights.begin() + keys);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (std::size_t key = 0; key < keys; ++key) {
                const float weight = std::exp(weights[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d)
                    out[d] += weight * common::get(v, start + key * p.head_dim + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
