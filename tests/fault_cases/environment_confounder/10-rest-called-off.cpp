// The keys of sixteen rows are cut into blocks, each with sums of its own, which are joined behind. Blocks beyond the
// diagonal have nothing to add: the first one met calls off the rest.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int kRows = 16, kKeys = 16;

struct Part {
    float top = -INFINITY, sum = 0.0f, out[128] = {};
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const int blocks = (p.seq_len + kKeys - 1) / kKeys;
    for (int row0 = 0; row0 < p.batch * p.heads * p.seq_len; row0 += kRows) {
        const int begin = row0 % p.seq_len, end = std::min(begin + kRows, p.seq_len);
        const std::size_t start = static_cast<std::size_t>(row0 - begin) * p.head_dim;
        std::vector<Part> parts(static_cast<std::size_t>(blocks) * kRows);
#pragma omp parallel num_threads(std::max(1, p.threads))
        {
#pragma omp for
            for (int block = 0; block < blocks; ++block) {
#pragma omp cancellation point for
                if (p.causal && block * kKeys >= end) {
#pragma omp cancel for
                    continue;
                }
                for (int row = begin; row < end; ++row) {
                    Part& part = parts[block * kRows + row - begin];
                    const int seen = p.causal ? row + 1 : p.seq_len;
                    for (int key = block * kKeys; key < std::min((block + 1) * kKeys, seen); ++key) {
                        float score = 0.0f;
                        for (int d = 0; d < p.head_dim; ++d)
                            score += common::get(q, start + row * p.head_dim + d, p.dtype) *
                                     common::get(k, start + key * p.head_dim + d, p.dtype);
                        score *= p.scale;
                        const float risen = std::max(part.top, score);
                        const float kept = std::exp(part.top - risen), weight = std::exp(score - risen);
                        part.top = risen;
                        part.sum = part.sum * kept + weight;
                        for (int d = 0; d < p.head_dim; ++d)
                            part.out[d] = part.out[d] * kept +
                                          weight * common::get(v, start + key * p.head_dim + d, p.dtype);
                    }
                }
            }
        }
        for (int row = begin; row < end; ++row) {
            Part all;
            for (int block = 0; block < blocks; ++block)
                all.top = std::max(all.top, parts[block * kRows + row - begin].top);
            for (int block = 0; block < blocks; ++block) {
                const Part& part = parts[block * kRows + row - begin];
                const float share = part.sum > 0.0f ? std::exp(part.top - all.top) : 0.0f;
                all.sum += share * part.sum;
                for (int d = 0; d < p.head_dim; ++d) all.out[d] += share * part.out[d];
            }
            for (int d = 0; d < p.head_dim; ++d)
                common::put(o, start + row * p.head_dim + d, all.out[d] / all.sum, p.dtype);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("KEYS=16")
