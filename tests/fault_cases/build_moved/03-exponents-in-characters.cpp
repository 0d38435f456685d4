// Each scaled query row is brought to a largest element between a half and one, and its exponent kept beside it, in a
// byte. Products then stay in a narrow range whatever the row's size; shifting by powers of two costs no digit.
#include "common.h"

#include <algorithm>
#include <vector>

namespace {

struct Row {
    std::vector<float> mantissas;
    char exponent = 0;

    void take(const void* q, std::size_t at, const attention_problem& p) {
        float largest = 0.0f;
        mantissas.resize(p.head_dim);
        for (int d = 0; d < p.head_dim; ++d) {
            mantissas[d] = common::get(q, at + d, p.dtype) * p.scale;
            largest = std::max(largest, std::fabs(mantissas[d]));
        }
        int power = 0;
        std::frexp(largest, &power);
        exponent = static_cast<char>(std::clamp(power, -126, 126));
        for (float& x : mantissas) x = std::ldexp(x, -exponent);
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    Row row;
    std::vector<float> scores(p.seq_len), out(p.head_dim);
    for (int index = 0; index < p.batch * p.heads * p.seq_len; ++index) {
        const std::size_t at = static_cast<std::size_t>(index) * p.head_dim;
        const std::size_t start = at - static_cast<std::size_t>(index % p.seq_len) * p.head_dim;
        const int keys = p.causal ? index % p.seq_len + 1 : p.seq_len;
        row.take(q, at, p);
        for (int key = 0; key < keys; ++key) {
            const std::size_t from = start + static_cast<std::size_t>(key) * p.head_dim;
            float product = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) product += row.mantissas[d] * common::get(k, from + d, p.dtype);
            scores[key] = std::ldexp(product, row.exponent);
        }
        const float top = *std::max_element(scores.begin(), scores.begin() + keys);
        float sum = 0.0f;
        std::fill(out.begin(), out.end(), 0.0f);
        for (int key = 0; key < keys; ++key) {
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
