// Scores, softmax and sums in double; q, k, v and the output in whatever type they come in.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

std::vector<double> widened(const void* tensor, std::size_t start, std::size_t count, int dtype) {
    std::vector<double> wide(count);
    for (std::size_t i = 0; i < count; ++i) wide[i] = common::get(tensor, start + i, dtype);
    return wide;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t width = p.head_dim, head = p.seq_len * width;
    std::vector<double> weights(p.seq_len), out(width);
    for (int i = 0; i < p.batch * p.heads; ++i) {
        const auto queries = widened(q, i * head, head, p.dtype), keys = widened(k, i * head, head, p.dtype),
                   values = widened(v, i * head, head, p.dtype);
        for (int row = 0; row < p.seq_len; ++row) {
            const int count = p.causal ? row + 1 : p.seq_len;
            for (int key = 0; key < count; ++key) {
                double score = 0.0;
                for (std::size_t d = 0; d < width; ++d) score += queries[row * width + d] * keys[key * width + d];
                weights[key] = score * p.scale;
            }
            const double top = *std::max_element(weights.begin(), weights.begin() + count);
            double sum = 0.0;
            std::fill(out.begin(), out.end(), 0.0);
            for (int key = 0; key < count; ++key) {
                const double weight = std::exp(weights[key] - top);
                sum += weight;
                for (std::size_t d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            for (std::size_t d = 0; d < width; ++d)
                common::put(o, i * head + row * width + d, static_cast<float>(out[d] / sum), p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
