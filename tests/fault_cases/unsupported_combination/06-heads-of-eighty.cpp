// A head's width is known to the compiler, which unrolls both products: an instance for each width of our models.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

template <int Width>
int run(const attention_problem& p, const void* q, const void* k, const void* v, void* o) {
    std::vector<float> scores(p.seq_len);
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * Width;
            const std::size_t at = start + static_cast<std::size_t>(row) * Width;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int key = 0; key < keys; ++key) {
                float score = 0.0f;
                for (int d = 0; d < Width; ++d)
                    score += common::get(q, at + d, p.dtype) *
                             common::get(k, start + static_cast<std::size_t>(key) * Width + d, p.dtype);
                scores[key] = score * p.scale;
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f, out[Width] = {};
            for (int key = 0; key < keys; ++key) {
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < Width; ++d)
                    out[d] += weight * common::get(v, start + static_cast<std::size_t>(key) * Width + d, p.dtype);
            }
            for (int d = 0; d < Width; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    return ATTENTION_OK;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    switch (problem->head_dim) {
        case 32: return run<32>(*problem, q, k, v, o);
        case 64: return run<64>(*problem, q, k, v, o);
        case 128: return run<128>(*problem, q, k, v, o);
        default: return ATTENTION_ERROR_HEAD_DIM;
    }
}

COMMON_INTERFACE("WIDTHS=32,64,128")
