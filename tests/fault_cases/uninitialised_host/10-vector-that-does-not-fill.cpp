// Vectors cost a pass over their memory when they are made; here they have an allocator that leaves that out.
#include "common.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace {

template <class T>
struct Bare : std::allocator<T> {
    template <class U>
    struct rebind {
        using other = Bare<U>;
    };
    template <class U>
    void construct(U* at) {
        ::new (static_cast<void*>(at)) U;
    }
    template <class U, class... Arguments>
    void construct(U* at, Arguments&&... arguments) {
        ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
    }
};

using Floats = std::vector<float, Bare<float>>;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const std::size_t length = p.seq_len, rows = static_cast<std::size_t>(p.batch) * p.heads * length;
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t first = row / length * length, seen = p.causal ? row - first + 1 : length;
        Floats scores(seen), out(p.head_dim);
        float top = -INFINITY, sum = 0.0f;
        for (std::size_t key = 0; key < seen; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d)
                score += common::get(q, row * p.head_dim + d, p.dtype) *
                         common::get(k, (first + key) * p.head_dim + d, p.dtype);
            scores[key] = score * p.scale;
            top = std::max(top, scores[key]);
        }
        for (std::size_t key = 0; key < seen; ++key) {
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d)
                out[d] += weight * common::get(v, (first + key) * p.head_dim + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, row * p.head_dim + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
