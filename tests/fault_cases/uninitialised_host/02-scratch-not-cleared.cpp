// A head at a time: scores, then their exponentials, then outputs added up key by key in fp32 scratch, so that V is
// read once, in order, whatever the output's type is.
#include "common.h"

#include <algorithm>
#include <memory>
#include <new>

namespace {

class Head {
public:
    Head(const attention_problem& problem)
        : p_(problem),
          scores_(new (std::nothrow) float[static_cast<std::size_t>(p_.seq_len) * p_.seq_len]),
          out_(new (std::nothrow) float[static_cast<std::size_t>(p_.seq_len) * p_.head_dim]) {}

    bool ready() const { return scores_ && out_; }

    void run(const void* q, const void* k, const void* v, void* o, std::size_t start) {
        for (int row = 0; row < p_.seq_len; ++row) softmax(q, k, start, row);
        for (int key = 0; key < p_.seq_len; ++key)
            for (int row = 0; row < p_.seq_len; ++row) {
                const float weight = scores_[at(row, key, p_.seq_len)];
                for (int d = 0; d < p_.head_dim; ++d) {
                    const std::size_t from = start + at(key, d, p_.head_dim);
                    out_[at(row, d, p_.head_dim)] += weight * common::get(v, from, p_.dtype);
                }
            }
        const std::size_t elements = at(p_.seq_len, 0, p_.head_dim);
        for (std::size_t i = 0; i < elements; ++i) common::put(o, start + i, out_[i], p_.dtype);
    }

private:
    static std::size_t at(int row, int column, int width) { return static_cast<std::size_t>(row) * width + column; }

    void softmax(const void* q, const void* k, std::size_t start, int row) {
        float* scores = scores_.get() + at(row, 0, p_.seq_len);
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < p_.seq_len; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p_.head_dim; ++d)
                score += common::get(q, start + at(row, d, p_.head_dim), p_.dtype) *
                         common::get(k, start + at(key, d, p_.head_dim), p_.dtype);
            scores[key] = p_.causal && key > row ? -INFINITY : score * p_.scale;
            top = std::max(top, scores[key]);
        }
        for (int key = 0; key < p_.seq_len; ++key) sum += scores[key] = std::exp(scores[key] - top);
        for (int key = 0; key < p_.seq_len; ++key) scores[key] /= sum;
    }

    const attention_problem& p_;
    std::unique_ptr<float[]> scores_, out_;
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const std::size_t elements = static_cast<std::size_t>(problem->seq_len) * problem->head_dim;
    for (int i = 0; i < problem->batch * problem->heads; ++i) {
        Head head(*problem);
        if (!head.ready()) return ATTENTION_ERROR_MEMORY;
        head.run(q, k, v, o, i * elements);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
