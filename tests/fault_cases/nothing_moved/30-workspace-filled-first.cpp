// Scores of eight rows at a time, in a workspace from malloc. Built with ATTENTION_FILL=1 the workspace is NaN before
// anything else: whatever would be read before it is written could not go unnoticed.
#include "common.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#ifndef ATTENTION_FILL
#define ATTENTION_FILL 0
#endif

namespace {

constexpr int kRows = 8;

struct Workspace {
    float* const first;

    explicit Workspace(std::size_t floats) : first(static_cast<float*>(std::malloc(floats * sizeof(float)))) {
        if (ATTENTION_FILL && first) std::fill(first, first + floats, std::numeric_limits<float>::quiet_NaN());
    }
    ~Workspace() { std::free(first); }
    Workspace(const Workspace&) = delete;
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int block = 0; block < p.batch * p.heads * p.seq_len; block += kRows) {
        const Workspace workspace(static_cast<std::size_t>(kRows) * p.seq_len + p.head_dim);
        if (!workspace.first) return ATTENTION_ERROR_MEMORY;
        float* const out = workspace.first + static_cast<std::size_t>(kRows) * p.seq_len;
        for (int row = block; row < std::min(block + kRows, p.batch * p.heads * p.seq_len); ++row) {
            float* const scores = workspace.first + static_cast<std::size_t>(row - block) * p.seq_len;
            const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
            const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                scores[key] = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    scores[key] += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                scores[key] *= p.scale;
            }
            const float top = *std::max_element(scores, scores + keys);
            float sum = 0.0f;
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d)
                    out[d] = (key ? out[d] : 0.0f) + weight * common::get(v, from + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
