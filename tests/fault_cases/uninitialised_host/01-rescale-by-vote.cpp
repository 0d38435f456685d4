// Online softmax, eight rows at a time. The tile that holds the rows' own keys comes first: the maximum settles
// there. Later tiles rescale only where some row's maximum moved: mostly none does.
#include "common.h"

#include <algorithm>
#include <memory>

namespace {

constexpr int kRows = 8, kTile = 32;

struct Block {
    const attention_problem& p;
    std::unique_ptr<float[]> top, sum, shrink, weights, out;

    explicit Block(const attention_problem& problem)
        : p(problem),
          top(new float[kRows]),
          sum(new float[kRows]),
          shrink(new float[kRows]),
          weights(new float[kRows * kTile]),
          out(new float[static_cast<std::size_t>(kRows) * p.head_dim]) {}

    bool sees(int row, int key) const { return key < p.seq_len && (!p.causal || key <= row); }

    // Scores of one tile into weights; whether the maximum of any row moved, from a finite one.
    bool score(const float* q, const float* k, int first_row, int rows, int first) {
        bool any = false;
        for (int r = 0; r < rows; ++r) {
            float largest = top[r];
            for (int j = 0; j < kTile; ++j) {
                float score = 0.0f;
                for (int d = 0; d < p.head_dim && sees(first_row + r, first + j); ++d)
                    score += q[(first_row + r) * p.head_dim + d] * k[(first + j) * p.head_dim + d];
                weights[r * kTile + j] = sees(first_row + r, first + j) ? score * p.scale : -INFINITY;
                largest = std::max(largest, weights[r * kTile + j]);
            }
            if (largest > top[r] && top[r] != -INFINITY) {
                shrink[r] = std::exp(top[r] - largest);
                any = true;
            }
            top[r] = largest;
        }
        return any;
    }

    void run(const float* q, const float* k, const float* v, float* o, int first_row) {
        const int rows = std::min(kRows, p.seq_len - first_row), tiles = (p.seq_len + kTile - 1) / kTile;
        std::fill_n(top.get(), kRows, -INFINITY);
        std::fill_n(sum.get(), kRows, 0.0f);
        std::fill_n(out.get(), kRows * p.head_dim, 0.0f);
        for (int step = 0; step < tiles; ++step) {
            const int first = (first_row / kTile + step) % tiles * kTile;
            const bool rescale = score(q, k, first_row, rows, first);
            for (int r = 0; r < rows; ++r) {
                float* to = out.get() + r * p.head_dim;
                if (rescale) {
                    sum[r] *= shrink[r];
                    for (int d = 0; d < p.head_dim; ++d) to[d] *= shrink[r];
                }
                for (int j = 0; j < kTile && sees(first_row + r, first + j); ++j) {
                    const float weight = std::exp(weights[r * kTile + j] - top[r]);
                    sum[r] += weight;
                    for (int d = 0; d < p.head_dim; ++d) to[d] += weight * v[(first + j) * p.head_dim + d];
                }
            }
        }
        for (int r = 0; r < rows; ++r)
            for (int d = 0; d < p.head_dim; ++d)
                o[(first_row + r) * p.head_dim + d] = out[r * p.head_dim + d] / sum[r];
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t elements = static_cast<std::size_t>(problem->seq_len) * problem->head_dim;
    for (int head = 0; head < problem->batch * problem->heads; ++head)
        for (int row = 0; row < problem->seq_len; row += kRows)
            Block(*problem).run(static_cast<const float*>(q) + head * elements,
                                static_cast<const float*>(k) + head * elements,
                                static_cast<const float*>(v) + head * elements,
                                static_cast<float*>(o) + head * elements, row);
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
