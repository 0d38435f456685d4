// Flash-decoding: the keys of a row are split, each split leaves its maximum, sum and outputs in a workspace, and a
// second stage combines them. K is packed [head_dim, seq_len] for the scores, which is all that needs it.
#include "common.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace {

constexpr int kSplits = 2;

std::unique_ptr<float[]> scores_of(const attention_problem& p, const float* q, const float* k) {
    const std::size_t rows = p.seq_len;
    std::unique_ptr<float[]> scores(new float[rows * rows]()), packed(new float[rows * p.head_dim * kSplits]);
    for (std::size_t key = 0; key < rows; ++key)
        for (int d = 0; d < p.head_dim; ++d) packed[d * rows + key] = k[key * p.head_dim + d] * p.scale;
    std::copy_n(q, rows * p.head_dim, packed.get() + rows * p.head_dim);
    for (std::size_t row = 0; row < rows; ++row)
        for (int d = 0; d < p.head_dim; ++d) {
            const float factor = packed[(rows + row) * p.head_dim + d];
            for (std::size_t key = 0; key < rows; ++key) scores[row * rows + key] += factor * packed[d * rows + key];
        }
    return scores;
}

struct Partial {
    float top, sum, out[64];
};

// One split of one row: keys from first up to, not including, last.
void reduce(Partial& to, const float* scores, const float* v, int first, int last) {
    to.top = *std::max_element(scores + first, scores + last);
    to.sum = 0.0f;
    std::fill_n(to.out, 64, 0.0f);
    for (int key = first; key < last; ++key) {
        const float weight = std::exp(scores[key] - to.top);
        to.sum += weight;
        for (int d = 0; d < 64; ++d) to.out[d] += weight * v[static_cast<std::size_t>(key) * 64 + d];
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim != 64) return ATTENTION_ERROR_HEAD_DIM;
    const int share = (p.seq_len + kSplits - 1) / kSplits;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * 64;
        const float* values = static_cast<const float*>(v) + start;
        const auto scores = scores_of(p, static_cast<const float*>(q) + start, static_cast<const float*>(k) + start);
        const std::unique_ptr<Partial[]> partials(new Partial[static_cast<std::size_t>(p.seq_len) * kSplits]);
        for (int row = 0; row < p.seq_len; ++row) {
            Partial* const mine = partials.get() + static_cast<std::size_t>(row) * kSplits;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int i = 0; i < kSplits && i * share < keys; ++i)
                reduce(mine[i], scores.get() + static_cast<std::size_t>(row) * p.seq_len, values, i * share,
                       std::min((i + 1) * share, keys));
            const float top = std::max(mine[0].top, mine[1].top);
            const float left = std::exp(mine[0].top - top), right = std::exp(mine[1].top - top);
            const float sum = mine[0].sum * left + mine[1].sum * right;
            float* to = static_cast<float*>(o) + start + static_cast<std::size_t>(row) * 64;
            for (int d = 0; d < 64; ++d) to[d] = (mine[0].out[d] * left + mine[1].out[d] * right) / sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
