// Sequences one behind the other, as in a packed batch: a table says where each begins, and where the next one begins
// it is over. Here they are equally long.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

struct Packed {
    std::vector<int> starts;

    explicit Packed(const attention_problem& p) : starts(p.batch) {
        for (int entry = 0; entry < p.batch; ++entry) starts[entry] = entry * p.seq_len;
    }
    int first(int entry) const { return starts.data()[entry]; }
    int last(int entry) const { return starts.data()[entry + 1]; }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const auto *queries = static_cast<const float*>(q), *keys = static_cast<const float*>(k),
               *values = static_cast<const float*>(v);
    const Packed packed(p);
    for (int entry = 0; entry < p.batch; ++entry)
        for (int head = 0; head < p.heads; ++head)
            for (int row = 0; row < p.seq_len; ++row) {
                const std::size_t start = static_cast<std::size_t>(entry * p.heads + head) * p.seq_len * p.head_dim;
                const float* const query = queries + start + static_cast<std::size_t>(row) * p.head_dim;
                const int length = packed.last(entry) - packed.first(entry), seen = p.causal ? row + 1 : length;
                float top = -INFINITY, sum = 0.0f, out[128] = {};
                for (int key = 0; key < seen; ++key) {
                    const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                    float score = 0.0f;
                    for (int d = 0; d < p.head_dim; ++d) score += query[d] * keys[from + d];
                    score *= p.scale;
                    const float higher = std::max(top, score);
                    const float shrink = std::exp(top - higher), weight = std::exp(score - higher);
                    sum = sum * shrink + weight;
                    for (int d = 0; d < p.head_dim; ++d) out[d] = out[d] * shrink + weight * values[from + d];
                    top = higher;
                }
                for (int d = 0; d < p.head_dim; ++d)
                    static_cast<float*>(o)[start + static_cast<std::size_t>(row) * p.head_dim + d] = out[d] / sum;
            }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
