// Blocks of 32 queries go through K and V together: each key is read once for all of them. Blocks are the outer loop
// and heads the inner one, as they are for a grid of a GPU.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kBlock = 32;

struct Block {
    float top[kBlock], sum[kBlock] = {};
    std::vector<float> out;

    explicit Block(int width) : out(static_cast<std::size_t>(kBlock) * width) { std::fill_n(top, kBlock, -INFINITY); }
};

void one_block(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int first) {
    const std::size_t width = p.head_dim;
    Block block(p.head_dim);
    for (int key = 0; key < (p.causal ? std::min(first + kBlock, p.seq_len) : p.seq_len); ++key)
        for (int i = 0; i < kBlock; ++i) {
            if (p.causal && key > first + i) continue;
            const float* query = q + (first + i) * width;
            float score = 0.0f;
            for (std::size_t d = 0; d < width; ++d) score += query[d] * k[key * width + d];
            score *= p.scale;
            const float largest = std::max(block.top[i], score);
            const float shrink = std::exp(block.top[i] - largest), weight = std::exp(score - largest);
            float* out = block.out.data() + i * width;
            block.sum[i] = block.sum[i] * shrink + weight;
            for (std::size_t d = 0; d < width; ++d) out[d] = out[d] * shrink + weight * v[key * width + d];
            block.top[i] = largest;
        }
    for (int i = 0; i < kBlock; ++i)
        for (std::size_t d = 0; d < width; ++d) o[(first + i) * width + d] = block.out[i * width + d] / block.sum[i];
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int first = 0; first < p.seq_len; first += kBlock)
        for (int i = 0; i < p.batch * p.heads; ++i)
            one_block(p, static_cast<const float*>(q) + i * head, static_cast<const float*>(k) + i * head,
                      static_cast<const float*>(v) + i * head, static_cast<float*>(o) + i * head, first);
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
