// Online softmax by blocks of keys. From PyTorch 2.3 on, whose builds may assume AVX2, the scores of the next block are
// computed while the exponentials of this one are under way; the last block has no next one and comes behind the loop.
#include "common.h"

#include <torch/version.h>

#include <algorithm>
#include <vector>

namespace {

constexpr int block = 32;

struct Row {
    const float *q, *k, *v;
    int width;
    float scale, top = -INFINITY, sum = 0.0f;
    std::vector<float> out = {};

    void scores(float* to, int first, int count) const {
        for (int key = 0; key < count; ++key) {
            const float* other = k + static_cast<std::size_t>(first + key) * width;
            float product = 0.0f;
            for (int d = 0; d < width; ++d) product += q[d] * other[d];
            to[key] = product * scale;
        }
    }

    float rise(const float* from, int count) {
        const float before = top;
        top = std::max(top, *std::max_element(from, from + count));
        return std::exp(before - top);
    }

    void add(const float* from, int first, int count) {
        for (int key = 0; key < count; ++key) {
            const float weight = std::exp(from[key] - top);
            const float* value = v + static_cast<std::size_t>(first + key) * width;
            sum += weight;
            for (int d = 0; d < width; ++d) out[d] += weight * value[d];
        }
    }

    void shrink(float factor) {
        sum *= factor;
        for (float& x : out) x *= factor;
    }

    void all(int keys) {
        float ready[block];
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
        float next[block];
        int first = 0;
        scores(ready, 0, std::min(block, keys));
        for (; first + block < keys; first += block) {
            scores(next, first + block, std::min(block, keys - first - block));
            shrink(rise(ready, block));
            add(ready, first, block);
            std::copy(next, next + std::min(block, keys - first - block), ready);
        }
        sum *= rise(ready, keys - first);
        add(ready, first, keys - first);
#else
        for (int first = 0; first < keys; first += block) {
            const int count = std::min(block, keys - first);
            scores(ready, first, count);
            shrink(rise(ready, count));
            add(ready, first, count);
        }
#endif
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int code = common::check(problem, q, k, v, o)) return code;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = problem->seq_len, width = problem->head_dim, heads = problem->batch * problem->heads;
    for (int head = 0; head < heads; ++head) {
        const std::size_t base = static_cast<std::size_t>(head) * rows * width;
        for (int i = 0; i < rows; ++i) {
            const std::size_t at = base + static_cast<std::size_t>(i) * width;
            Row row{static_cast<const float*>(q) + at, static_cast<const float*>(k) + base,
                    static_cast<const float*>(v) + base, width, problem->scale};
            row.out.assign(width, 0.0f);
            row.all(problem->causal ? i + 1 : rows);
            for (int d = 0; d < width; ++d) static_cast<float*>(o)[at + d] = row.out[d] / row.sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("BLOCK=32")
