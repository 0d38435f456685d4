// Tiles of 32 keys, online softmax. Scratch memory belongs to the thread, grows and stays: a call allocates nothing. It
// is not cleared, since every element is written before it is read.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

constexpr int kTile = 32;

struct Scratch {
    std::unique_ptr<float[]> memory;
    std::size_t floats = 0;

    float* reserve(std::size_t wanted) {
        if (wanted > floats) memory.reset(new float[wanted]), floats = wanted;
        return memory.get();
    }
};
thread_local Scratch scratch;

void row_of(const attention_problem& p, const void* q, const void* k, const void* v, void* o, std::size_t start,
            int row) {
    float *weights = scratch.reserve(kTile + 2 * p.head_dim), *query = weights + kTile, *out = query + p.head_dim;
    const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
    for (int d = 0; d < p.head_dim; ++d) query[d] = common::get(q, at + d, p.dtype) * p.scale;
    const int keys = p.causal ? row + 1 : p.seq_len;
    float top = -INFINITY, sum = 0.0f;
    for (int first = 0; first < keys; first += kTile) {
        const int size = std::min(kTile, keys - first);
        float largest = top;
        for (int i = 0; i < size; ++i) {
            const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * common::get(k, from + d, p.dtype);
            weights[i] = score;
            largest = std::max(largest, score);
        }
        const float shrink = std::exp(top - largest);
        for (int d = 0; d < p.head_dim; ++d) out[d] = first == 0 ? 0.0f : out[d] * shrink;
        sum *= shrink;
        top = largest;
        for (int i = 0; i < size; ++i) {
            const std::size_t from = start + static_cast<std::size_t>(first + i) * p.head_dim;
            const float weight = std::exp(weights[i] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
    }
    for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const std::size_t elements = static_cast<std::size_t>(problem->seq_len) * problem->head_dim;
    for (int head = 0; head < problem->batch * problem->heads; ++head)
        for (int row = 0; row < problem->seq_len; ++row) row_of(*problem, q, k, v, o, head * elements, row);
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
