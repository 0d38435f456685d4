// Scores by squared distances: 2 q k = |q|^2 + |k|^2 - |q - k|^2, as they come from a search for near neighbours.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

std::vector<double> squares(const attention_problem& p, const float* x) {
    std::vector<double> out(p.seq_len);
    for (int row = 0; row < p.seq_len; ++row)
        for (int d = 0; d < p.head_dim; ++d) {
            const double one = x[row * p.head_dim + d];
            out[row] += one * one;
        }
    return out;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = p.seq_len, width = p.head_dim;
    std::vector<double> scores(rows), out(width);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * rows * width;
        const auto *queries = static_cast<const float*>(q) + start, *keys = static_cast<const float*>(k) + start;
        const float* values = static_cast<const float*>(v) + start;
        const std::vector<double> norms = squares(p, queries);
        for (int row = 0; row < rows; ++row) {
            const int seen = p.causal ? row + 1 : rows;
            double top = -INFINITY, sum = 0.0;
            for (int key = 0; key < seen; ++key) {
                double distance = 0.0;
                for (int d = 0; d < width; ++d) {
                    const double away = static_cast<double>(queries[row * width + d]) - keys[key * width + d];
                    distance += away * away;
                }
                scores[key] = (norms[row] + norms[key] - distance) / 2.0 * p.scale;
                top = std::max(top, scores[key]);
            }
            out.assign(width, 0.0);
            for (int key = 0; key < seen; ++key) {
                const double weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < width; ++d) out[d] += weight * values[key * width + d];
            }
            for (int d = 0; d < width; ++d)
                static_cast<float*>(o)[start + row * width + d] = static_cast<float>(out[d] / sum);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
