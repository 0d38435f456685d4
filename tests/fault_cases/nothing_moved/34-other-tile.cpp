// Online softmax. Scores are collected in a tile of any size, and a full tile, or the last one, is taken into the row.
#include "common.h"

#include <algorithm>

#ifndef ATTENTION_TILE
#define ATTENTION_TILE 32
#endif

namespace {

constexpr int kTile = ATTENTION_TILE;
static_assert(kTile > 0, "a tile holds a key at least");

class Row {
public:
    Row(const float* v, int width) : v_(v), width_(width) {}

    void add(float score) {
        scores_[held_++] = score;
        if (held_ == kTile) flush();
    }
    void store(float* o) {
        if (held_ > 0) flush();
        for (int d = 0; d < width_; ++d) o[d] = out_[d] / sum_;
    }

private:
    void flush() {
        const float largest = std::max(top_, *std::max_element(scores_, scores_ + held_));
        const float shrink = std::exp(top_ - largest);
        sum_ *= shrink;
        for (int d = 0; d < width_; ++d) out_[d] *= shrink;
        for (int j = 0; j < held_; ++j, v_ += width_) {
            const float weight = std::exp(scores_[j] - largest);
            sum_ += weight;
            for (int d = 0; d < width_; ++d) out_[d] += weight * v_[d];
        }
        top_ = largest;
        held_ = 0;
    }

    const float* v_;
    int width_, held_ = 0;
    float top_ = -INFINITY, sum_ = 0.0f, out_[128] = {}, scores_[kTile] = {};
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t width = p.head_dim;
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = head * p.seq_len * width, at = start + row * width;
            Row state(static_cast<const float*>(v) + start, p.head_dim);
            const float* query = static_cast<const float*>(q) + at;
            for (int key = 0; key < (p.causal ? row + 1 : p.seq_len); ++key) {
                const float* other = static_cast<const float*>(k) + start + key * width;
                float score = 0.0f;
                for (std::size_t d = 0; d < width; ++d) score += query[d] * other[d];
                state.add(score * p.scale);
            }
            state.store(static_cast<float*>(o) + at);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
