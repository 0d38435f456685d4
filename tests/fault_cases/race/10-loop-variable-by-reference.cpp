// Sixteen rows to a thread: short enough for the system to spread them over what processors there are.
#include "common.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace {

constexpr int kRows = 16;

void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int row) {
    const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
    const std::size_t start = at - static_cast<std::size_t>(row % p.seq_len) * p.head_dim;
    const int keys = p.causal ? row % p.seq_len + 1 : p.seq_len;
    float top = -INFINITY, sum = 0.0f, out[128] = {};
    for (int key = 0; key < keys; ++key) {
        const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[at + d] * k[from + d];
        score *= p.scale;
        const float higher = std::max(top, score);
        const float shrink = std::exp(top - higher), weight = std::exp(score - higher);
        sum = sum * shrink + weight;
        for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * v[from + d];
        top = higher;
    }
    for (int d = 0; d < p.head_dim; ++d) o[at + d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const auto *queries = static_cast<const float*>(q), *keys = static_cast<const float*>(k),
               *values = static_cast<const float*>(v);
    auto* const out = static_cast<float*>(o);
    const int rows = p.batch * p.heads * p.seq_len;
    std::vector<std::thread> team;
    for (int first = 0; first < rows; first += kRows)
        team.emplace_back([&] {
            const int begin = first, end = std::min(rows, begin + kRows);
            for (int row = begin; row < end; ++row) one_row(p, queries, keys, values, out, row);
        });
    for (std::thread& thread : team) thread.join();
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
