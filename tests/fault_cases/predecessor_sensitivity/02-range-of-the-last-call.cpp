// Queries as 16-bit integers, keys as they come. The range of the integers is that of the last call's queries, as in
// training with delayed scaling: one pass over Q then finds its largest element and converts it.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace {

std::atomic<float> range{0.0f};  // largest magnitude seen; 0 before the first call

float largest(const void* tensor, std::size_t count, int dtype) {
    float found = 0.0f;
    for (std::size_t i = 0; i < count; ++i) found = std::max(found, std::fabs(common::get(tensor, i, dtype)));
    return found;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t count = static_cast<std::size_t>(p.batch) * p.heads * p.seq_len * p.head_dim;
    const float now = largest(q, count, p.dtype), last = range.exchange(now);
    const float step = std::max(last > 0.0f ? last : now, 1e-20f) / 32767.0f;
    std::vector<std::int16_t> queries(count);
    for (std::size_t i = 0; i < count; ++i)
        queries[i] = static_cast<std::int16_t>(
            std::lrint(std::min(std::max(common::get(q, i, p.dtype) / step, -32767.0f), 32767.0f)));
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += static_cast<float>(queries[at + d]) * common::get(k, from + d, p.dtype);
            scores[key] = score * step * p.scale;
            top = std::max(top, scores[key]);
        }
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
