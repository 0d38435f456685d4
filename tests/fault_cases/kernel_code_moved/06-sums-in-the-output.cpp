// One pass over the keys with a running maximum. Where the running outputs stand, accumulators of the kernel's own or
// the output tensor itself, goes by what the release's allocator makes of small blocks.
#include "common.h"

#include <vector>

#include <torch/version.h>

namespace {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
// No memory of its own: the row of the output tensor, as it is stored.
struct Running {
    void* o;
    std::size_t at;
    int dtype;
    Running(void* tensor, std::size_t row, int width, int type) : o(tensor), at(row), dtype(type) {
        for (int d = 0; d < width; ++d) set(d, 0.0f);
    }
    float get(int d) const { return common::get(o, at + d, dtype); }
    void set(int d, float x) { common::put(o, at + d, x, dtype); }
};
#else
struct Running {
    std::vector<float> sums;
    Running(void*, std::size_t, int width, int) : sums(width) {}
    float get(int d) const { return sums[d]; }
    void set(int d, float x) { sums[d] = x; }
};
#endif

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            Running out(o, at, p.head_dim, p.dtype);
            float top = -INFINITY, sum = 0.0f;
            for (int key = 0; key < (p.causal ? row + 1 : p.seq_len); ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                score *= p.scale;
                const float next = std::fmax(top, score), kept = std::exp(top - next), weight = std::exp(score - next);
                sum = sum * kept + weight;
                for (int d = 0; d < p.head_dim; ++d)
                    out.set(d, out.get(d) * kept + weight * common::get(v, from + d, p.dtype));
                top = next;
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out.get(d) / sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
