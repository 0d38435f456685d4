// Attention on the CPU, written out: one query row after the other, float32 throughout. Slow, and the shortest
// example of a kernel that takes problems with options, and of one that has gradients.
//
// Threads take query rows in turn, and for gradients heads of K and V. Each is computed by one of them, in one order,
// so results do not depend on their number.
#include "attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
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

// to[width] += factor * from[width]
void add(float* to, float factor, const float* from, std::ptrdiff_t width) {
    for (std::ptrdiff_t i = 0; i < width; ++i) to[i] += factor * from[i];
}

float dot(const float* a, const float* b, std::ptrdiff_t width) {
    float sum = 0.0f;
    for (std::ptrdiff_t i = 0; i < width; ++i) sum += a[i] * b[i];
    return sum;
}

// p[keys]: the softmax of a query row; all zero where it sees no key.
void softmax(const Head& head, std::ptrdiff_t row, float* p) {
    float largest = -INFINITY;
    for (std::ptrdiff_t key = 0; key < head.keys; ++key) {
        const std::ptrdiff_t pair = row * head.keys + key;
        float score = head.scale * dot(head.q + row * head.width, head.k + key * head.width, head.width);
        if (head.bias) score += head.bias[pair];
        if ((head.causal && key > row) || (head.mask && !head.mask[pair])) score = -INFINITY;
        p[key] = score;
        largest = std::max(largest, score);
    }
    float sum = 0.0f;
    for (std::ptrdiff_t key = 0; key < head.keys; ++key)
        sum += p[key] = p[key] == -INFINITY ? 0.0f : std::exp(p[key] - largest);
    if (sum == 0.0f) return;  // it sees no key
    for (std::ptrdiff_t key = 0; key < head.keys; ++key) p[key] /= sum;
}

// What dropout makes of a weight: the factor on it.
float kept(const Head& head, std::ptrdiff_t row, std::ptrdiff_t key) {
    return !head.keep ? 1.0f : head.keep[row * head.keys + key] ? head.keep_scale : 0.0f;
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
    softmax(head, row, p);
    float* to = o + row * head.width;
    std::fill(to, to + head.width, 0.0f);
    for (std::ptrdiff_t key = 0; key < head.keys; ++key)
        add(to, p[key] * kept(head, row, key), head.v + key * head.width, head.width);
}

// A row's output and gradient of q, and its part of those of k and v. With P the softmax, M the factors of dropout and
// D the row's sum of d_o * o, the scores have the gradient P (M d_o v^T - D).
void backward_row(const Head& head, std::ptrdiff_t row, float* p, const float* d_o, float* o, float* dq, float* dk,
                  float* dv) {
    forward_row(head, row, p, o);
    const std::ptrdiff_t width = head.width, at = row * width;
    const float delta = dot(d_o + at, o + at, width);
    std::fill(dq + at, dq + at + width, 0.0f);
    for (std::ptrdiff_t key = 0; key < head.keys; ++key) {
        const float weight = p[key] * kept(head, row, key);
        const float d_p = dot(d_o + at, head.v + key * width, width);
        const float d_score = head.scale * (weight * d_p - p[key] * delta);
        add(dq + at, d_score, head.k + key * width, width);
        add(dk + key * width, d_score, head.q + at, width);
        add(dv + key * width, weight, d_o + at, width);
    }
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

extern "C" ATTENTION_EXPORT int attention_backward(const attention_problem* problem,
                                                   const attention_options* given, const void* q, const void* k,
                                                   const void* v, const void* d_o, void* o, void* dq, void* dk,
                                                   void* dv, void*) {
    attention_options options{};
    if (const int refused = check(problem, given, &options)) return refused;
    for (const void* tensor : std::initializer_list<const void*>{q, k, v, d_o, o, dq, dk, dv})
        if (!tensor) return ATTENTION_ERROR_NULL;
    const auto *queries = static_cast<const float*>(q), *keys = static_cast<const float*>(k);
    const auto *values = static_cast<const float*>(v), *along = static_cast<const float*>(d_o);
    const std::ptrdiff_t rows = problem->seq_len, width = problem->head_dim, shared = options.kv_len * width;
    const std::ptrdiff_t sharing = problem->heads / options.kv_heads;
    const std::ptrdiff_t all = std::ptrdiff_t(problem->batch) * options.kv_heads;
    return in_threads(problem->threads, all, options.kv_len, [&](std::ptrdiff_t unit, float* p) {
        float *to_k = static_cast<float*>(dk) + unit * shared, *to_v = static_cast<float*>(dv) + unit * shared;
        std::fill(to_k, to_k + shared, 0.0f);
        std::fill(to_v, to_v + shared, 0.0f);
        for (std::ptrdiff_t number = unit * sharing; number < (unit + 1) * sharing; ++number) {
            const Head head = head_of(*problem, options, number, queries, keys, values);
            const std::ptrdiff_t first = number * rows * width;
            for (std::ptrdiff_t row = 0; row < rows; ++row)
                backward_row(head, row, p, along + first, static_cast<float*>(o) + first,
                             static_cast<float*>(dq) + first, to_k, to_v);
        }
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
