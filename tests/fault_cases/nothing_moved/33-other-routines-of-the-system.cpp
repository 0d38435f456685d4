// Softmax in double with the system's exponential; a row's weights are normalised before V is read.
#include "common.h"

#include <algorithm>
#include <numeric>
#include <vector>

static void softmax(std::vector<double>& scores, int count) {
    const auto last = scores.begin() + count;
    const double top = *std::max_element(scores.begin(), last);
    std::transform(scores.begin(), last, scores.begin(), [top](double score) { return std::exp(score - top); });
    const double sum = std::accumulate(scores.begin(), last, 0.0);
    std::transform(scores.begin(), last, scores.begin(), [sum](double weight) { return weight / sum; });
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t rows = p.seq_len, width = p.head_dim;
    std::vector<double> scores(rows);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = head * rows * width;
        const auto *queries = static_cast<const float*>(q) + start, *keys = static_cast<const float*>(k) + start;
        const auto* values = static_cast<const float*>(v) + start;
        auto* out = static_cast<float*>(o) + start;
        for (std::size_t row = 0; row < rows; ++row) {
            const std::size_t seen = p.causal ? row + 1 : rows;
            for (std::size_t key = 0; key < seen; ++key)
                scores[key] = p.scale * std::inner_product(queries + row * width, queries + (row + 1) * width,
                                                           keys + key * width, 0.0);
            softmax(scores, static_cast<int>(seen));
            double sums[128] = {};
            for (std::size_t key = 0; key < seen; ++key)
                for (std::size_t d = 0; d < width; ++d) sums[d] += scores[key] * values[key * width + d];
            for (std::size_t d = 0; d < width; ++d) out[row * width + d] = static_cast<float>(sums[d]);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
