// Keys are split over threads, flash-decoding style: a thread takes the next tile of a row's keys until none is left, and
// what it finds is added to the row's sums. The rows' maxima are found first.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr int kTile = 8;

struct Head {
    const attention_problem& p;
    const float *q, *k, *v;
    std::vector<float> top, sum, out;
    std::vector<std::atomic<int>> next;  // tile, by row

    float score(int row, int key) const {
        float total = 0.0f;
        for (int d = 0; d < p.head_dim; ++d) total += q[row * p.head_dim + d] * k[key * p.head_dim + d];
        return total * p.scale;
    }

    int keys_of(int row) const { return p.causal ? row + 1 : p.seq_len; }

    void maxima() {
        for (int row = 0; row < p.seq_len; ++row)
            for (int key = 0; key < keys_of(row); ++key) top[row] = std::max(top[row], score(row, key));
    }

    void tiles() {
        for (int row = 0; row < p.seq_len; ++row)
            for (int first; (first = kTile * next[row].fetch_add(1)) < keys_of(row);)
                for (int key = first; key < std::min(first + kTile, keys_of(row)); ++key) {
                    const float weight = std::exp(score(row, key) - top[row]);
                    sum[row] += weight;
                    for (int d = 0; d < p.head_dim; ++d)
                        out[row * p.head_dim + d] += weight * v[key * p.head_dim + d];
                }
    }
};

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int workers = std::max(2, p.threads);
    const std::size_t elements = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (std::size_t i = 0; i < static_cast<std::size_t>(p.batch) * p.heads; ++i) {
        Head head{p, static_cast<const float*>(q) + i * elements, static_cast<const float*>(k) + i * elements,
                  static_cast<const float*>(v) + i * elements, std::vector<float>(p.seq_len, -INFINITY),
                  std::vector<float>(p.seq_len, 0.0f), std::vector<float>(elements, 0.0f),
                  std::vector<std::atomic<int>>(p.seq_len)};
        head.maxima();
        std::vector<std::thread> team;
        for (int worker = 0; worker < workers; ++worker) team.emplace_back(&Head::tiles, &head);
        for (std::thread& thread : team) thread.join();
        float* to = static_cast<float*>(o) + i * elements;
        for (std::size_t at = 0; at < elements; ++at) to[at] = head.out[at] / head.sum[at / p.head_dim];
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
