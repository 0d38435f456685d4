// Two rows share what is read of K and V; a head's last row may be alone. Vectors hold what depends on the shape.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

struct Row {
    std::vector<float> query, scores, out;
    int keys = 0;

    void begin(const attention_problem& p, const void* q, std::size_t at, int seen) {
        keys = seen;
        scores.resize(p.seq_len);
        query.resize(p.head_dim);
        out.assign(p.head_dim, 0.0f);
        for (int d = 0; d < p.head_dim; ++d) query[d] = common::get(q, at + d, p.dtype) * p.scale;
    }
    void score(int key, const float* from) {
        float sum = 0.0f;
        for (std::size_t d = 0; d < query.size(); ++d) sum += query[d] * from[d];
        scores[key] = sum;
    }
    void weigh() {
        const float top = *std::max_element(scores.begin(), scores.begin() + keys);
        float sum = 0.0f;
        for (int key = 0; key < keys; ++key) sum += scores[key] = std::exp(scores[key] - top);
        for (int key = 0; key < keys; ++key) scores[key] /= sum;
    }
    void add(int key, const float* from) {
        const float weight = scores[key];
        for (std::size_t d = 0; d < out.size(); ++d) out[d] += weight * from[d];
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> one(p.head_dim);
    std::vector<Row> rows(2);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        const auto read = [&](const void* tensor, int key) {
            for (int d = 0; d < p.head_dim; ++d)
                one[d] = common::get(tensor, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
            return one.data();
        };
        for (int first = 0; first < p.seq_len; first += 2) {
            const int count = std::min(2, p.seq_len - first);
            for (int i = 0; i < count; ++i)
                rows[i].begin(p, q, start + static_cast<std::size_t>(first + i) * p.head_dim,
                              p.causal ? first + i + 1 : p.seq_len);
            for (int key = 0; key < p.seq_len; ++key) {
                const float* const from = read(k, key);
                for (int i = 0; i < count; ++i) rows[i].score(key, from);
            }
            for (int i = 0; i < count; ++i) rows[i].weigh();
            for (int key = 0; key < rows[count - 1].keys; ++key) {
                const float* const from = read(v, key);
                for (int i = 0; i < count; ++i)
                    if (key < rows[i].keys) rows[i].add(key, from);
            }
            for (int i = 0; i < count; ++i) {
                const std::size_t at = start + static_cast<std::size_t>(first + i) * p.head_dim;
                for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, rows[i].out[d], p.dtype);
            }
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
