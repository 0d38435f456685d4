// Causal rows need room for as many scores as they see keys: one buffer for a head, which grows with its rows.
#include "common.h"

#include <algorithm>
#include <cstdlib>

namespace {

class Scores {
public:
    Scores() : data_(static_cast<float*>(std::calloc(kStep, sizeof(float)))), room_(data_ ? kStep : 0) {}
    ~Scores() { std::free(data_); }
    Scores(const Scores&) = delete;
    Scores& operator=(const Scores&) = delete;

    // Zeros for so many keys, to add to; nullptr where there is no memory.
    float* cleared(int keys) {
        std::fill_n(data_, room_, 0.0f);
        if (keys > room_) {
            const int room = (keys + kStep - 1) / kStep * kStep;
            void* larger = std::realloc(data_, room * sizeof(float));
            if (!larger) return nullptr;
            data_ = static_cast<float*>(larger);
            room_ = room;
        }
        return data_;
    }

private:
    static constexpr int kStep = 16;

    float* data_;
    int room_;
};

// Channels by sixteen: a slice of the query stays in registers for all keys.
void one_row(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int keys,
             float* scores) {
    for (int first = 0; first < p.head_dim; first += 16)
        for (int key = 0; key < keys; ++key) {
            const int last = std::min(first + 16, p.head_dim);
            for (int d = first; d < last; ++d) scores[key] += q[d] * k[static_cast<std::size_t>(key) * p.head_dim + d];
        }
    const float sign = p.scale < 0.0f ? -1.0f : 1.0f;
    float top = -INFINITY, sum = 0.0f, out[128] = {};
    for (int key = 0; key < keys; ++key) top = std::max(top, sign * scores[key]);
    for (int key = 0; key < keys; ++key) {
        scores[key] = std::exp(p.scale * (scores[key] - sign * top));
        sum += scores[key];
        for (int d = 0; d < p.head_dim; ++d) out[d] += scores[key] * v[static_cast<std::size_t>(key) * p.head_dim + d];
    }
    for (int d = 0; d < p.head_dim; ++d) o[d] = out[d] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int i = 0; i < p.batch * p.heads; ++i) {
        Scores buffer;
        for (int row = 0; row < p.seq_len; ++row) {
            const int keys = p.causal ? row + 1 : p.seq_len;
            float* scores = buffer.cleared(keys);
            if (!scores) return ATTENTION_ERROR_MEMORY;
            const std::size_t at = i * head + static_cast<std::size_t>(row) * p.head_dim;
            one_row(p, static_cast<const float*>(q) + at, static_cast<const float*>(k) + i * head,
                    static_cast<const float*>(v) + i * head, static_cast<float*>(o) + at, keys, scores);
        }
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
