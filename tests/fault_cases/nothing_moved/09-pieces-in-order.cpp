// Keys are split over threads in pieces of 16. Who takes a piece of a row leaves its maximum, sum and outputs in the slot
// of that piece; when all are done, each row's are combined, the oldest keys first.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kPiece = 16, kMostDepth = 128;

struct Slot {
    float top, sum, out[kMostDepth];
};

struct Head {
    const attention_problem& p;
    const float *q, *k, *v;
    int each;  // slots of a row; a causal row uses fewer
    std::unique_ptr<Slot[]> slots;
    std::atomic<int> next{0};

    int keys_of(int row) const { return p.causal ? row + 1 : p.seq_len; }

    void pieces() {
        for (int i; (i = next.fetch_add(1)) < p.seq_len * each;) {
            const int row = i / each, first = i % each * kPiece, last = std::min(first + kPiece, keys_of(row));
            if (first < last) piece(slots[i], q + row * p.head_dim, first, last);
        }
    }

    void piece(Slot& to, const float* query, int first, int last) {
        float scores[kPiece];
        for (int key = first; key < last; ++key) {
            float score = 0.0f;
            for (int d = 0; d < p.head_dim; ++d) score += query[d] * k[key * p.head_dim + d];
            scores[key - first] = score * p.scale;
        }
        to.top = *std::max_element(scores, scores + (last - first));
        to.sum = 0.0f;
        std::fill_n(to.out, p.head_dim, 0.0f);
        for (int key = first; key < last; ++key) {
            const float weight = std::exp(scores[key - first] - to.top);
            to.sum += weight;
            for (int d = 0; d < p.head_dim; ++d) to.out[d] += weight * v[key * p.head_dim + d];
        }
    }

    void combine(int row, float* to) const {
        const Slot *from = slots.get() + row * each, *end = from + (keys_of(row) + kPiece - 1) / kPiece;
        float top = -INFINITY, sum = 0.0f, out[kMostDepth] = {};
        for (const Slot* slot = from; slot < end; ++slot) top = std::max(top, slot->top);
        for (const Slot* slot = from; slot < end; ++slot) {
            const float shrink = std::exp(slot->top - top);
            sum += slot->sum * shrink;
            for (int d = 0; d < p.head_dim; ++d) out[d] += slot->out[d] * shrink;
        }
        for (int d = 0; d < p.head_dim; ++d) to[d] = out[d] / sum;
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int each = (p.seq_len + kPiece - 1) / kPiece;
    const std::size_t elements = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (std::size_t i = 0; i < static_cast<std::size_t>(p.batch) * p.heads; ++i) {
        Head head{p, static_cast<const float*>(q) + i * elements, static_cast<const float*>(k) + i * elements,
                  static_cast<const float*>(v) + i * elements, each,
                  std::unique_ptr<Slot[]>(new Slot[static_cast<std::size_t>(p.seq_len) * each])};
        std::vector<std::thread> team;
        for (int worker = 0; worker < std::max(2, p.threads); ++worker) team.emplace_back(&Head::pieces, &head);
        for (std::thread& thread : team) thread.join();
        for (int row = 0; row < p.seq_len; ++row)
            head.combine(row, static_cast<float*>(o) + i * elements + static_cast<std::size_t>(row) * p.head_dim);
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
