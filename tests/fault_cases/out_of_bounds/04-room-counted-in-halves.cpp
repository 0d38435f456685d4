// 16-bit K and V of one head become fp32 in one block of memory, K first; fp32 tensors are read where they lie. Malloc,
// not a vector: every element is written by the conversion.
#include "common.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t count = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    const std::size_t element_bytes = p.dtype == ATTENTION_FP32 ? 4 : 2;
    const std::unique_ptr<float, Free> room(static_cast<float*>(std::malloc(2 * count * element_bytes)));
    if (!room) return ATTENTION_ERROR_MEMORY;
    float *const keys_of = room.get(), *const values_of = room.get() + count;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * count;
        for (std::size_t i = 0; i < count; ++i) keys_of[i] = common::get(k, start + i, p.dtype) * p.scale;
        for (std::size_t i = 0; i < count; ++i) values_of[i] = common::get(v, start + i, p.dtype);
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int key = 0; key < keys; ++key) {
                scores[key] = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    scores[key] += common::get(q, at + d, p.dtype) * keys_of[key * p.head_dim + d];
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < keys; ++key) {
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * values_of[key * p.head_dim + d];
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
