// Attention on the CPU, written out: one query row after the other, float32 throughout. Slow, and the shortest
// example of a kernel that takes problems with options: other heads and rows of K and V, masks, dropout.
//
// Threads take query rows in turn. Each row is computed by one of them, so results do not depend on their number.
#include "attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <vector>

namespace {

// One head's part of each tensor, and what its rows see.
struct Head {
    const float *q, *k, *v, *bias;
    const unsigned char *mask, *keep;
    float keep_scale;
    std::ptrdiff_t rows, keys, width;
    bool causal;
    float scale;
};

// p[keys]: the softmax of a query row, as dropout leaves it; all zero where it sees no key.
void weights(const Head& head, std::ptrdiff_t row, float* p) {
    float largest = -INFINITY;
    for (std::ptrdiff_t key = 0; key < head.keys; ++key) {
        const std::ptrdiff_t pair = row * head.keys + key;
        float score = 0.0f;
        for (std::ptrdiff_t i = 0; i < head.width; ++i)
            score += head.q[row * head.width + i] * head.k[key * head.width + i];
        score *= head.scale;
        if (head.bias) score += head.bias[pair];
        if ((head.causal && key > row) || (head.mask && !head.mask[pair])) score = -INFINITY;
        p[key] = score;
        largest = std::max(largest, score);
    }
    float sum = 0.0f;
    for (std::ptrdiff_t key = 0; key < head.keys; ++key)
        sum += p[key] = p[key] == -INFINITY ? 0.0f : std::exp(p[key] - largest);
    if (sum == 0.0f) return;  // it sees no key
    for (std::ptrdiff_t key = 0; key < head.keys; ++key) {
        const float kept = !head.keep ? 1.0f : head.keep[row * head.keys + key] ? head.keep_scale : 0.0f;
        p[key] = p[key] / sum * kept;
    }
}

Head head_of(const attention_problem& p, const attention_options& options, std::ptrdiff_t number,
             const float* q, const float* k, const float* v) {
    const std::ptrdiff_t rows = p.seq_len, keys = options.kv_len, width = p.head_dim;
    const std::ptrdiff_t shared = number / (p.heads / options.kv_heads), batch = number / p.heads;
    const std::ptrdiff_t pairs = batch * rows * keys;
    const float* bias = static_cast<const float*>(options.bias);
    return {q + number * rows * width,
            k + shared * keys * width,
            v + shared * keys * width,
            bias ? bias + pairs : nullptr,
            options.mask ? options.mask + pairs : nullptr,
            options.keep ? options.keep + number * rows * keys : nullptr,
            options.keep_scale,
            rows,
            keys,
            width,
            p.causal != 0,
            p.scale};
}

void forward_row(const Head& head, std::ptrdiff_t row, float* p, float* o) {
    weights(head, row, p);
    float* to = o + row * head.width;
    std::fill(to, to + head.width, 0.0f);
    for (std::ptrdiff_t key = 0; key < head.keys; ++key)
        for (std::ptrdiff_t i = 0; i < head.width; ++i) to[i] += p[key] * head.v[key * head.width + i];
}

// ATTENTION_OK with the options in `known`, or a refusal. Of a smaller struct, an older caller's, the rest is 0.
int check(const attention_problem* problem, const attention_options* options, attention_options* known) {
    if (!problem || !options) return ATTENTION_ERROR_NULL;
    const std::size_t size = options->struct_size;  // of a negative one a very large number
    if (size > sizeof *known) return ATTENTION_ERROR_OPTIONS;
    std::memcpy(known, options, size);
    const attention_problem& p = *problem;
    if (p.batch < 1 || p.heads < 1 || p.seq_len < 1 || p.head_dim < 1) return ATTENTION_ERROR_SHAPE;
    if (known->kv_len < 1 || known->kv_heads < 1 || p.heads % known->kv_heads) return ATTENTION_ERROR_SHAPE;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    return p.threads < 0 ? ATTENTION_ERROR_THREADS : ATTENTION_OK;
}

// Calls work(unit, scratch) for units 0 to count - 1 in up to so many threads, each with `floats` of its own.
template <typename Work>
int in_threads(int threads, std::ptrdiff_t count, std::size_t floats, const Work& work) {
    std::atomic<std::ptrdiff_t> next{0};
    const auto run = [&] {
        try {
            std::vector<float> scratch(floats);
            for (std::ptrdiff_t unit; (unit = next.fetch_add(1)) < count;) work(unit, scratch.data());
        } catch (const std::bad_alloc&) {
            // Without memory it draws no unit; the others do its share. Only if all fail is work left.
        }
    };
    std::vector<std::thread> team;
    try {
        for (int thread = 1; thread < threads; ++thread) team.emplace_back(run);
    } catch (const std::exception&) {
        // No more threads to be had: those that run, and this one, do the work.
    }
    run();
    for (std::thread& thread : team) thread.join();
    return next.load() < count ? ATTENTION_ERROR_MEMORY : ATTENTION_OK;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward_options(const attention_problem* problem,
                                                          const attention_options* given, const void* q,
                                                          const void* k, const void* v, void* o, void*) {
    attention_options options{};
    if (const int refused = check(problem, given, &options)) return refused;
    if (!q || !k || !v || !o) return ATTENTION_ERROR_NULL;
    const auto *queries = static_cast<const float*>(q), *keys = static_cast<const float*>(k);
    const auto* values = static_cast<const float*>(v);
    const std::ptrdiff_t rows = problem->seq_len, size = rows * problem->head_dim;
    const std::ptrdiff_t all = std::ptrdiff_t(problem->batch) * problem->heads * rows;
    return in_threads(problem->threads, all, options.kv_len, [&](std::ptrdiff_t row, float* p) {
        const std::ptrdiff_t number = row / rows;
        const Head head = head_of(*problem, options, number, queries, keys, values);
        forward_row(head, row % rows, p, static_cast<float*>(o) + number * size);
    });
}

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q,
                                                  const void* k, const void* v, void* o, void* stream) {
    if (!problem) return ATTENTION_ERROR_NULL;
    attention_options options{};
    options.struct_size = sizeof options;
    options.kv_heads = problem->heads;
    options.kv_len = problem->seq_len;
    return attention_forward_options(problem, &options, q, k, v, o, stream);
}

extern "C" ATTENTION_EXPORT const char* attention_error_string(int code) {
    switch (code) {
        case ATTENTION_OK: return "ok";
        case ATTENTION_ERROR_NULL: return "the problem, the options or a tensor pointer is NULL";
        case ATTENTION_ERROR_SHAPE: return "sizes must be at least 1, and kv_heads must divide heads";
        case ATTENTION_ERROR_DTYPE: return "dtype must be fp32 (2)";
        case ATTENTION_ERROR_THREADS: return "threads must not be negative";
        case ATTENTION_ERROR_MEMORY: return "no host memory for the workspace";
        case ATTENTION_ERROR_OPTIONS: return "it has no code for one of the options";
        default: return "unknown error code";
    }
}

extern "C" ATTENTION_EXPORT const char* attention_tunables(void) { return ""; }
