// What a call needs is packed into one word, which stays in a register: the number of keys, and the scale in the upper
// half, as a bfloat16.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

class Parameters {
public:
    Parameters(int keys, float scale)
        : word_(static_cast<std::uint32_t>(common::to_bfloat(scale)) << 16 | static_cast<std::uint16_t>(keys)) {}
    int keys() const { return static_cast<int>(word_ & 0xffffu); }
    float scale() const { return common::from_bits(word_ & 0xffff0000u); }

private:
    std::uint32_t word_;
};

void one_row(const Parameters& parameters, int channels, const float* q, const float* k, const float* v, float* o) {
    std::vector<float> scores(parameters.keys());
    float top = -INFINITY, sum = 0.0f, out[128] = {};
    for (int key = 0; key < parameters.keys(); ++key) {
        const float* const from = k + static_cast<std::size_t>(key) * channels;
        float score = 0.0f;
        for (int d = 0; d < channels; ++d) score += q[d] * from[d];
        scores[key] = score * parameters.scale();
        top = std::max(top, scores[key]);
    }
    for (int key = 0; key < parameters.keys(); ++key) {
        const float* const from = v + static_cast<std::size_t>(key) * channels;
        const float weight = std::exp(scores[key] - top);
        sum += weight;
        for (int d = 0; d < channels; ++d) out[d] += weight * from[d];
    }
    for (int d = 0; d < channels; ++d) o[d] = out[d] / sum;
}

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    for (int row = 0; row < p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        one_row(Parameters(p.causal ? row + 1 : p.seq_len, p.scale), p.head_dim, q + at, k, v, o + at);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    if (p.seq_len > 0xffff) return ATTENTION_ERROR_TOO_LARGE;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        one_head(p, static_cast<const float*>(q) + start, static_cast<const float*>(k) + start,
                 static_cast<const float*>(v) + start, static_cast<float*>(o) + start);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
