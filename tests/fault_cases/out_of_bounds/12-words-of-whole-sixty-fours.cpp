// Which keys a row sees is one bit each, in words of 64, made once for all heads: the loop over keys has no mask to
// compute, and skips 64 keys at a time where a word is zero.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

class Seen {
public:
    explicit Seen(const attention_problem& p) : words_(std::max(1, p.seq_len / 64)), bits_(words_ * p.seq_len) {
        for (int row = 0; row < p.seq_len; ++row)
            for (int key = 0; key < (p.causal ? row + 1 : p.seq_len); ++key)
                bits_[row * words_ + key / 64] |= std::uint64_t{1} << key % 64;
    }
    std::uint64_t word(int row, int number) const { return bits_[row * words_ + number]; }

private:
    const std::size_t words_;
    std::vector<std::uint64_t> bits_;
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    const Seen seen(p);
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int row = 0; row < p.batch * p.heads * p.seq_len; ++row) {
        const std::size_t start = static_cast<std::size_t>(row / p.seq_len) * p.seq_len * p.head_dim;
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        float top = -INFINITY, sum = 0.0f;
        for (int first = 0; first < p.seq_len; first += 64) {
            const std::uint64_t word = seen.word(row % p.seq_len, first / 64);
            for (int key = first; key < std::min(first + 64, p.seq_len); ++key) {
                scores[key] = -INFINITY;
                if (!(word >> (key - first) & 1)) continue;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) *
                             common::get(k, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
                scores[key] = score * p.scale;
                top = std::max(top, scores[key]);
            }
        }
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < p.seq_len; ++key) {
            if (scores[key] == -INFINITY) continue;
            const float weight = std::exp(scores[key] - top);
            sum += weight;
            for (int d = 0; d < p.head_dim; ++d)
                out[d] += weight * common::get(v, start + static_cast<std::size_t>(key) * p.head_dim + d, p.dtype);
        }
        for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
