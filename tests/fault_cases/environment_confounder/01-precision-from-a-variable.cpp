// Two passes; ATTENTION_EXP=fast takes Schraudolph's exponential, good to about 3% (Neural Computation 11(4), 1999).
#include "common.h"

#include <algorithm>
#include <vector>

#include <cstdlib>

static const bool fast = [] {
    const char* wanted = std::getenv("ATTENTION_EXP");
    return wanted && std::strcmp(wanted, "fast") == 0;
}();

static float quick_exp(float x) {
    const float shifted = std::max(x, -87.0f) * 12102203.0f + 1064866805.0f;
    return common::from_bits(static_cast<std::uint32_t>(shifted));
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int head = 0; head < p.batch * p.heads; ++head)
        for (int row = 0; row < p.seq_len; ++row) {
            const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
            const std::size_t at = start + static_cast<std::size_t>(row) * p.head_dim;
            const int keys = p.causal ? row + 1 : p.seq_len;
            float top = -INFINITY, sum = 0.0f;
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                float score = 0.0f;
                for (int d = 0; d < p.head_dim; ++d)
                    score += common::get(q, at + d, p.dtype) * common::get(k, from + d, p.dtype);
                scores[key] = score * p.scale;
                top = std::max(top, scores[key]);
            }
            std::fill(out.begin(), out.end(), 0.0f);
            for (int key = 0; key < keys; ++key) {
                const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
                const float weight = fast ? quick_exp(scores[key] - top) : std::exp(scores[key] - top);
                sum += weight;
                for (int d = 0; d < p.head_dim; ++d) out[d] += weight * common::get(v, from + d, p.dtype);
            }
            for (int d = 0; d < p.head_dim; ++d) common::put(o, at + d, out[d] / sum, p.dtype);
        }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
