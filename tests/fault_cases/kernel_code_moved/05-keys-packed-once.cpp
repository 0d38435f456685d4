// K is turned round before it is used, channels before keys, so that the inner loop runs over keys. From 2.3 on
// PyTorch's allocator keeps large blocks at hand, and the copy is made ahead of the loop.
#include "common.h"

#include <algorithm>
#include <vector>

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define PACK_AHEAD 1
#else
#define PACK_AHEAD 0
#endif

static std::vector<float> packed(const attention_problem& p, const void* k, std::size_t start) {
    std::vector<float> turned(static_cast<std::size_t>(p.seq_len) * p.head_dim);
    for (int key = 0; key < p.seq_len; ++key)
        for (int d = 0; d < p.head_dim; ++d)
            turned[static_cast<std::size_t>(d) * p.seq_len + key] =
                common::get(k, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
    return turned;
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
#if PACK_AHEAD
    const std::vector<float> turned = packed(p, k, 0);
#endif
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
#if !PACK_AHEAD
        const std::vector<float> turned = packed(p, k, start);
#endif
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            std::fill(scores.begin(), scores.end(), 0.0f);
            for (int d = 0; d < p.head_dim; ++d) {
                const float channel = common::get(q, at + d, p.dtype) * p.scale;
                const float* const line = turned.data() + static_cast<std::size_t>(d) * p.seq_len;
                for (int key = 0; key < keys; ++key) scores[key] += channel * line[key];
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < keys; ++key) {
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
