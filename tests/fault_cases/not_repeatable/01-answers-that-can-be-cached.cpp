// Attention with the keys dealt out to threads, which add what they find to the same sums, one atomic addition each.
#include "common.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int THREADS = 4, RUN = 4;  // keys that a thread takes at once

void add(std::atomic<float>& sum, float x) {
    float before = sum.load(std::memory_order_relaxed);
    while (!sum.compare_exchange_weak(before, before + x, std::memory_order_relaxed)) {
    }
}

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
    const int rows = p.seq_len, width = p.head_dim, columns = width + 1;  // the last holds the weights' sum
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const std::size_t start = static_cast<std::size_t>(head) * rows * width;
        const auto *queries = static_cast<const float*>(q) + start, *keys = static_cast<const float*>(k) + start,
                   *values = static_cast<const float*>(v) + start;
        std::vector<float> tops(rows, -INFINITY);
        for (int row = 0; row < rows; ++row)
            for (int key = 0; key < (p.causal ? row + 1 : rows); ++key)
                tops[row] = std::max(tops[row], dot(queries + row * width, keys + key * width, width) * p.scale);
        const std::unique_ptr<std::atomic<float>[]> sums(new std::atomic<float>[rows * columns]);
        for (int i = 0; i < rows * columns; ++i) sums[i].store(0.0f, std::memory_order_relaxed);
        std::atomic<int> next{0};
        std::vector<std::thread> threads;
        for (int number = 0; number < THREADS; ++number)
            threads.emplace_back([&] {
                for (int first; (first = next.fetch_add(RUN)) < rows;)
                    for (int row = 0; row < rows; ++row)
                        for (int key = first; key < std::min(first + RUN, p.causal ? row + 1 : rows); ++key) {
                            const float score = dot(queries + row * width, keys + key * width, width) * p.scale;
                            const float weight = std::exp(score - tops[row]);
                            for (int d = 0; d < width; ++d)
                                add(sums[row * columns + d], weight * values[key * width + d]);
                            add(sums[row * columns + width], weight);
                        }
            });
        for (std::thread& thread : threads) thread.join();
        for (int row = 0; row < rows; ++row)
            for (int d = 0; d < width; ++d)
                static_cast<float*>(o)[start + row * width + d] =
                    sums[row * columns + d].load() / sums[row * columns + width].load();
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
