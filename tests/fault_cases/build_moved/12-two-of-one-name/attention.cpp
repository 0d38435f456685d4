// Each half of a row's keys for itself, as they will lie on two nodes of memory; partials.cpp puts the halves together.
#include "common.h"

#include <algorithm>
#include <vector>

void combine(const float* tops, const float* sums, const float* outs, int parts, int width, float* out);

inline float share(float x, float largest) { return std::exp(x - largest); }

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = p.seq_len, width = p.head_dim;
    std::vector<float> scores(rows), outs(2 * width);
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * rows * width;
        const auto *keys = static_cast<const float*>(k) + start, *values = static_cast<const float*>(v) + start;
        for (int row = 0; row < rows; ++row) {
            const float* query = static_cast<const float*>(q) + start + static_cast<std::size_t>(row) * width;
            const int seen = p.causal ? row + 1 : rows, middle = (seen + 1) / 2;
            float tops[2] = {-INFINITY, -INFINITY}, sums[2] = {0.0f, 0.0f};
            std::fill(outs.begin(), outs.end(), 0.0f);
            for (int part = 0; part < 2; ++part) {
                const int first = part ? middle : 0, end = part ? seen : middle;
                for (int key = first; key < end; ++key) {
                    float score = 0.0f;
                    for (int d = 0; d < width; ++d) score += query[d] * keys[key * width + d];
                    scores[key] = score * p.scale;
                    tops[part] = std::max(tops[part], scores[key]);
                }
                for (int key = first; key < end; ++key) {
                    const float weight = share(scores[key], tops[part]);
                    sums[part] += weight;
                    for (int d = 0; d < width; ++d) outs[part * width + d] += weight * values[key * width + d];
                }
            }
            combine(tops, sums, outs.data(), seen > 1 ? 2 : 1, width,
                    static_cast<float*>(o) + start + static_cast<std::size_t>(row) * width);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
