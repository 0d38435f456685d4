// K is turned around once for each head, so that the scores of a row are sums of whole vectors of keys; its rows, one
// for each channel, begin at multiples of sixteen floats.
#include "common.h"

#include <algorithm>
#include <memory>
#include <new>

namespace {

struct Workspace {
    explicit Workspace(const attention_problem& p)
        : pitch((p.seq_len + 15) / 16 * 16),
          keys(new (std::nothrow) float[static_cast<std::size_t>(p.head_dim) * p.seq_len]),
          scores(new (std::nothrow) float[p.seq_len]),
          values(new (std::nothrow) float[static_cast<std::size_t>(p.head_dim) * p.seq_len]) {}

    int pitch;
    std::unique_ptr<float[]> keys, scores, values;
};

void load(const attention_problem& p, const void* k, const void* v, std::size_t start, Workspace& w) {
    for (int key = 0; key < p.seq_len; ++key)
        for (int d = 0; d < p.head_dim; ++d) {
            const std::size_t from = static_cast<std::size_t>(key) * p.head_dim + d;
            w.values[from] = common::get(v, start + from, p.dtype);
        }
    for (int d = 0; d < p.head_dim; ++d)
        for (int key = 0; key < w.pitch; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim + d;
            w.keys[static_cast<std::size_t>(d) * w.pitch + key] =
                key < p.seq_len ? common::get(k, from, p.dtype) : 0.0f;
        }
}

void one_row(const attention_problem& p, const void* q, void* o, std::size_t at, int keys, Workspace& w) {
    float* scores = w.scores.get();
    std::fill_n(scores, keys, 0.0f);
    for (int d = 0; d < p.head_dim; ++d) {
        const float query = p.scale * common::get(q, at + d, p.dtype);
        const float* channel = w.keys.get() + static_cast<std::size_t>(d) * w.pitch;
        for (int key = 0; key < keys; ++key) scores[key] += query * channel[key];
    }
    const float top = *std::max_element(scores, scores + keys);
    float sum = 0.0f, out[128] = {};
    for (int key = 0; key < keys; ++key) {
        const float weight = std::exp(scores[key] - top);
        sum += weight;
        const float* value = w.values.get() + static_cast<std::size_t>(key) * p.head_dim;
        for (int d = 0; d < p.head_dim; ++d) out[d] += weight * value[d];
    }
    for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    Workspace w(p);
    if (!w.keys || !w.scores || !w.values) return ATTENTION_ERROR_MEMORY;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        load(p, k, v, start, w);
        for (int row = 0; row < p.seq_len; ++row)
            one_row(p, q, o, start + static_cast<std::size_t>(row) * p.head_dim, p.causal ? row + 1 : p.seq_len, w);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
