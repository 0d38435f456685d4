// Attention split over the keys: each thread sums its share of them, and whoever is done adds to what the others left.
#include "common.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr int SHARES = 6;

// One head: rows of scores against one share of the keys, with the largest score of the whole row known before.
struct Share {
    std::vector<float> sums, totals;  // of rows and columns, of rows

    Share(int rows, int width) : sums(static_cast<std::size_t>(rows) * width), totals(rows) {}

    void add(const Share& other) {
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other.sums[i];
        for (std::size_t i = 0; i < totals.size(); ++i) totals[i] += other.totals[i];
    }
};

float dot(const float* a, const float* b, int width) {
    float sum = 0.0f;
    for (int d = 0; d < width; ++d) sum += a[d] * b[d];
    return sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void*) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = p.seq_len, width = p.head_dim;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * rows * width;
        const auto *queries = static_cast<const float*>(q) + start, *keys = static_cast<const float*>(k) + start,
                   *values = static_cast<const float*>(v) + start;
        std::vector<float> tops(rows, -INFINITY);
        for (int row = 0; row < rows; ++row)
            for (int key = 0; key < (p.causal ? row + 1 : rows); ++key)
                tops[row] = std::max(tops[row], dot(queries + row * width, keys + key * width, width) * p.scale);
        Share whole(rows, width);
        std::mutex adding;
        std::vector<std::thread> threads;
        for (int number = 0; number < SHARES; ++number)
            threads.emplace_back([&, number] {
                Share share(rows, width);
                for (int row = 0; row < rows; ++row)
                    for (int key = number; key < (p.causal ? row + 1 : rows); key += SHARES) {
                        const float score = dot(queries + row * width, keys + key * width, width) * p.scale;
                        const float weight = std::exp(score - tops[row]);
                        share.totals[row] += weight;
                        for (int d = 0; d < width; ++d) share.sums[row * width + d] += weight * values[key * width + d];
                    }
                const std::lock_guard<std::mutex> lock(adding);
                whole.add(share);
            });
        for (std::thread& thread : threads) thread.join();
        for (int row = 0; row < rows; ++row)
            for (int d = 0; d < width; ++d)
                static_cast<float*>(o)[start + row * width + d] = whole.sums[row * width + d] / whole.totals[row];
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
