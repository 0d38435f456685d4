// Keys of a head are turned on their side before its rows need them, so that scores are sums of whole rows. Heads and
// rows are one loop for the team, which a few heads alone would not keep busy.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int heads = p.batch * p.heads, rows = p.seq_len, width = p.head_dim;
    std::vector<float> turned(static_cast<std::size_t>(width) * rows);
#pragma omp parallel for collapse(2) schedule(static) num_threads(std::max(1, p.threads))
    for (int head = 0; head < heads; ++head)
        for (int row = 0; row < rows; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * rows * width;
            const std::size_t at = start + static_cast<std::size_t>(row) * width;
            if (row == 0)
                for (int key = 0; key < rows; ++key)
                    for (int d = 0; d < width; ++d)
                        turned[static_cast<std::size_t>(d) * rows + key] =
                            common::get(k, start + static_cast<std::size_t>(key) * width + d, p.dtype);
            const int keys = p.causal ? row + 1 : rows;
            std::vector<float> scores(keys), out(width);
            for (int d = 0; d < width; ++d) {
                const float query = common::get(q, at + d, p.dtype) * p.scale;
                const float* const line = turned.data() + static_cast<std::size_t>(d) * rows;
                for (int key = 0; key < keys; ++key) scores[key] += query * line[key];
            }
            const float top = *std::max_element(scores.begin(), scores.end());
            float sum = 0.0f;
            for (int key = 0; key < keys; ++key) {
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < width; ++d)
                    out[d] += weight * common::get(v, start + static_cast<std::size_t>(key) * width + d, p.dtype);
            }
            for (int d = 0; d < width; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
