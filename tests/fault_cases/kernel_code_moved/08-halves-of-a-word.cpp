// bf16 alone. From PyTorch 2.2 on tensors are aligned to whole words at least, and two numbers are read at once.
#include "common.h"

#include <torch/version.h>

#include <algorithm>
#include <vector>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
// A bf16 is the upper half of a float: one of the two needs a shift, the other a mask.
void widen(const std::uint16_t* from, float* to, int count) {
    for (int i = 0; i < count; i += 2) {
        std::uint32_t word;
        std::memcpy(&word, from + i, sizeof word);
        to[i] = common::from_bits(word & 0xffff0000u);
        to[i + 1] = common::from_bits(word << 16);
    }
}
#else
void widen(const std::uint16_t* from, float* to, int count) {
    for (int i = 0; i < count; ++i) to[i] = common::from_bfloat(from[i]);
}
#endif

class Rows {
public:
    Rows(const void* from, std::size_t start, int rows, int width) : width_(width), data_(rows * std::size_t(width)) {
        const auto* source = static_cast<const std::uint16_t*>(from) + start;
        for (int row = 0; row < rows; ++row) widen(source + at(row), data_.data() + at(row), width);
    }
    const float* operator[](int row) const { return data_.data() + at(row); }

private:
    std::size_t at(int row) const { return static_cast<std::size_t>(row) * width_; }

    int width_;
    std::vector<float> data_;
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_BF16) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim % 2) return ATTENTION_ERROR_HEAD_DIM;
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int i = 0; i < p.batch * p.heads; ++i) {
        const Rows queries(q, i * head, p.seq_len, p.head_dim), keys(k, i * head, p.seq_len, p.head_dim),
            values(v, i * head, p.seq_len, p.head_dim);
        for (int row = 0; row < p.seq_len; ++row) {
            float top = -INFINITY, sum = 0.0f, out[128] = {};
            for (int key = 0; key < (p.causal ? row + 1 : p.seq_len); ++key) {
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d) score += queries[row][d] * keys[key][d];
                score *= p.scale;
                const float largest = std::max(top, score), shrink = std::exp(top - largest);
                const float weight = std::exp(score - largest);
                sum = sum * shrink + weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * values[key][d];
                top = largest;
            }
            const std::size_t to = i * head + static_cast<std::size_t>(row) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) common::put(o, to + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
