// Online softmax. Scores are collected in a tile, and a full tile, or the last one, is taken into the row at once.
#include "common.h"

#include <algorithm>

#ifndef ATTENTION_TILE
#define ATTENTION_TILE 32
#endif

namespace {

constexpr int kTile = ATTENTION_TILE;

class Row {
public:
    Row(const float* v, int width) : v_(v), width_(width) {}

    void add(int key, float score, bool last) {
        const int slot = key & (kTile - 1);
        scores_[slot] = score;
        if (slot == kTile - 1 || last) take(key - slot, slot + 1);
    }
    void store(float* o) const {
        for (int d = 0; d < width_; ++d) o[d] = out_[d] / sum_;
    }

private:
    void take(int first, int count) {
        const float largest = std::max(top_, *std::max_element(scores_, scores_ + count));
        const float shrink = std::exp(top_ - largest);
        sum_ *= shrink;
        for (int d = 0; d < width_; ++d) out_[d] *= shrink;
        for (int j = 0; j < count; ++j) {
            const float weight = std::exp(scores_[j] - largest);
            const float* value = v_ + static_cast<std::size_t>(first + j) * width_;
            sum_ += weight;
            for (int d = 0; d < width_; ++d) out_[d] += weight * value[d];
        }
        top_ = largest;
    }

    const float* v_;
    int width_;
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
            const int keys = p.causal ? row + 1 : p.seq_len;
            Row state(static_cast<const float*>(v) + start, p.head_dim);
            const float* query = static_cast<const float*>(q) + at;
            for (int key = 0; key < keys; ++key) {
                const float* other = static_cast<const float*>(k) + start + key * width;
                float score = 0.0f;
                for (std::size_t d = 0; d < width; ++d) score += query[d] * other[d];
                state.add(key, score * p.scale, key == keys - 1);
            }
            state.store(static_cast<float*>(o) + at);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
