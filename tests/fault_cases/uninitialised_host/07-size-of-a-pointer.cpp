// Sixteen rows at a time against all keys, so that a row of V is read once for all of them.
#include "common.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace {

constexpr int kRows = 16;

struct Free {
    void operator()(float* memory) const { std::free(memory); }
};
using Floats = std::unique_ptr<float[], Free>;

Floats allocate(std::size_t count) { return Floats(static_cast<float*>(std::malloc(count * sizeof(float)))); }

void clear(void* memory, std::size_t bytes) { std::memset(memory, 0, bytes); }

int rows(const attention_problem& p, const void* q, const void* k, const void* v, void* o, std::size_t start,
         int first) {
    const int count = std::min(kRows, p.seq_len - first);
    const Floats memory = allocate(kRows * p.head_dim), weights = allocate(static_cast<std::size_t>(count) * p.seq_len);
    if (!memory || !weights) return ATTENTION_ERROR_MEMORY;
    float sums[kRows], *out = memory.get();
    clear(sums, sizeof sums);
    clear(out, sizeof out);
    for (int i = 0; i < count; ++i) {
        float *mine = weights.get() + static_cast<std::size_t>(i) * p.seq_len, top = -INFINITY;
        const std::size_t at = start + static_cast<std::size_t>(first + i) * p.head_dim;
        for (int key = 0; key < p.seq_len; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
            mine[key] = p.causal && key > first + i ? -INFINITY : score * p.scale;
            top = std::max(top, mine[key]);
        }
        for (int key = 0; key < p.seq_len; ++key) sums[i] += mine[key] = std::exp(mine[key] - top);
    }
    for (int key = 0; key < p.seq_len; ++key)
        for (int i = 0; i < count; ++i) {
            const float weight = weights[static_cast<std::size_t>(i) * p.seq_len + key];
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            for (int d = 0; d < p.head_dim; ++d) out[i * p.head_dim + d] += weight * common::get(v, from + d, p.dtype);
        }
    for (int i = 0; i < count * p.head_dim; ++i) {
        const std::size_t at = start + static_cast<std::size_t>(first) * p.head_dim + i;
        common::put(o, at, out[i] / sums[i / p.head_dim], p.dtype);
    }
    return ATTENTION_OK;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const std::size_t elements = static_cast<std::size_t>(problem->seq_len) * problem->head_dim;
    for (int head = 0; head < problem->batch * problem->heads; ++head)
        for (int first = 0; first < problem->seq_len; first += kRows)
            if (const int code = rows(*problem, q, k, v, o, head * elements, first)) return code;
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
