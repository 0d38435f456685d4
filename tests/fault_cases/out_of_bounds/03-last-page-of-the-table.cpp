// Keys and values by pages of 16, through a table, as a server keeps them. Here the pages of a head happen to lie in a
// row; nothing below relies on it.
#include "common.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace {

constexpr int kPage = 16;

struct Pages {
    const float* pool;
    std::vector<int> table;
    int head_dim;

    Pages(const float* first, int keys, int dim) : pool(first), table(keys / kPage), head_dim(dim) {
        std::iota(table.begin(), table.end(), 0);
    }
    const float* key(int index) const {
        const std::ptrdiff_t place = static_cast<std::ptrdiff_t>(table[index / kPage]) * kPage + index % kPage;
        return pool + place * head_dim;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        const Pages keys_of(static_cast<const float*>(k) + start, p.seq_len, p.head_dim);
        const Pages values_of(static_cast<const float*>(v) + start, p.seq_len, p.head_dim);
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const float* const query = static_cast<const float*>(q) + at;
            float* const out = static_cast<float*>(o) + at;
            const int keys = p.causal ? row + 1 : p.seq_len;
            for (int key = 0; key < keys; ++key) {
                const float* const from = keys_of.key(key);
                scores[key] = 0.0f;
                for (int d = 0; d < p.head_dim; ++d) scores[key] += query[d] * from[d];
                scores[key] *= p.scale;
            }
            const float top = *std::max_element(scores.begin(), scores.begin() + keys);
            float sum = 0.0f;
            std::fill(out, out + p.head_dim, 0.0f);
            for (int key = 0; key < keys; ++key) {
                const float* const from = values_of.key(key);
                const float weight = std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * from[d];
            }
            for (int d = 0; d < p.head_dim; ++d) out[d] /= sum;
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
