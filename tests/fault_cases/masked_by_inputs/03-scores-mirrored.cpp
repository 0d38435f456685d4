// All scores of a head. A product of rows with rows is symmetric: what lies above the diagonal is copied from below it,
// and half of the multiplications are saved, masked or not.
#include "common.h"

#include <algorithm>
#include <vector>

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int rows = p.seq_len;
    std::vector<float> scores(static_cast<std::size_t>(rows) * rows), out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * rows * p.head_dim;
        for (int row = 0; row < rows; ++row)
            for (int key = 0; key <= row; ++key) {
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, start + row * p.head_dim + d, p.dtype) *
                             common::get(k, start + key * p.head_dim + d, p.dtype);
                scores[row * rows + key] = scores[key * rows + row] = score * p.scale;
            }
        for (int row = 0; row < rows; ++row) {
            const float* const mine = scores.data() + static_cast<std::size_t>(row) * rows;
            const int keys = p.causal ? row + 1 : rows;
            const float top = *std::max_element(mine, mine + keys);
            float sum = 0.0f;
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < keys; ++key) {
                const float weight = std::exp(mine[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d)
                    out[d] += weight * common::get(v, start + key * p.head_dim + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d)
                common::put(o, start + row * p.head_dim + d, out[d] / sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
