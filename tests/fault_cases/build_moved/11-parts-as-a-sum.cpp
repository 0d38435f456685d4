// A row's keys in equal parts, each with a maximum, a sum and outputs of its own, which are combined in the end: parts
// are short enough for their scores to stay in the nearest cache.
#include "common.h"

#include <algorithm>
#include <vector>

#ifndef ATTENTION_PARTS
#define ATTENTION_PARTS 4
#endif

namespace {

struct Part {
    float top = -INFINITY, sum = 0.0f, out[128] = {};
};

void take(Part& part, const attention_problem& p, const float* q, const float* k, const float* v, int first, int last) {
    std::vector<float> scores;
    for (int key = first; key < last; ++key) {
        const float* const from = k + static_cast<std::size_t>(key) * p.head_dim;
        float score = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) score += q[d] * from[d];
        scores.push_back(score * p.scale);
        part.top = std::max(part.top, scores.back());
    }
    for (int key = first; key < last; ++key) {
        const float* const from = v + static_cast<std::size_t>(key) * p.head_dim;
        const float weight = std::exp(scores[key - first] - part.top);
        part.sum += weight;
        for (int d = 0; d < p.head_dim; ++d) part.out[d] += weight * from[d];
    }
}

void one_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    for (int row = 0; row < p.seq_len; ++row) {
        const std::size_t at = static_cast<std::size_t>(row) * p.head_dim;
        const int keys = p.causal ? row + 1 : p.seq_len;
        Part whole;
        for (int i = 0; i < ATTENTION_PARTS; ++i) {
            const int first = i * keys / ATTENTION_PARTS, last = std::min(keys, (i + 1) * keys / ATTENTION_PARTS);
            if (first >= last) continue;  // fewer keys than parts
            Part part;
            take(part, p, q + at, k, v, first, last);
            const float top = std::max(whole.top, part.top);
            const float old = std::exp(whole.top - top), add = std::exp(part.top - top);
            whole.top = top;
            whole.sum = whole.sum * old + part.sum * add;
            for (int d = 0; d < p.head_dim; ++d) whole.out[d] = whole.out[d] * old + part.out[d] * add;
        }
        for (int d = 0; d < p.head_dim; ++d) o[at + d] = whole.out[d] / whole.sum;
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * p.seq_len * p.head_dim;
        one_head(p, static_cast<const float*>(q) + start, static_cast<const float*>(k) + start,
                 static_cast<const float*>(v) + start, static_cast<float*>(o) + start);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
