// An attention on the CPU with one fault, which CHOSEN names (tests/candidates/faulty.py), or FAULTY_KERNEL.
#ifndef CHOSEN
#define CHOSEN "none"
#endif
#include "attention.h"
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static bool is(const char* fault) {
    static const char* asked = std::getenv("FAULTY_KERNEL");
    return fault == std::string(asked ? asked : CHOSEN);
}

// Zero, by right. What is in `left` nobody wrote.
__attribute__((noinline)) static float start_of_sum(bool faulty) {
    volatile float left[1024];
    return faulty ? left[100] : 0.0f;
}

// One row: scores, softmax, product with v. `sum` and `out` are added to, so both must be zero before.
static void row(const attention_problem& p, const float* q, const float* k, const float* v, float* out, float& sum,
                int keys) {
    float top = -INFINITY;
    std::vector<float> scores(keys);
    for (int j = 0; j < keys; ++j) {
        float score = 0;
        for (int c = 0; c < p.head_dim; ++c) score += q[c] * k[j * p.head_dim + c];
        if (is("narrow")) score = std::fmin(score, 8.0f);  // as a sum in a type of that range
        if (is("scale")) score *= 0.5f;
        scores[j] = score * p.scale;
        top = scores[j] > top ? scores[j] : top;
    }
    if (top > 100 && is("abort")) std::abort();  // of the inputs of validation none comes so far
    if (top > 100 && is("hang")) sleep(3600);
    if (is("nomax")) top = 0;
    for (int j = 0; j < keys; ++j) {
        const float weight = std::exp(scores[j] - top);
        sum += weight;
        for (int c = 0; c < p.head_dim; ++c) out[c] += weight * v[j * p.head_dim + c];
    }
}

extern "C" int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v,
                                 void* o, void*) {
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const auto *qs = static_cast<const float*>(q), *ks = static_cast<const float*>(k),
               *vs = static_cast<const float*>(v);
    auto* os = static_cast<float*>(o);
    const int size = p.head_dim, rows = p.batch * p.heads * p.seq_len;
    const std::size_t bytes = sizeof(float) * rows * size;
    auto* work = static_cast<float*>(is("heap") ? std::malloc(bytes) : std::calloc(1, bytes));
    static float kept = 0;
    auto one = [&](int r, bool faulty_sum) {
        const long head = r / p.seq_len, i = r % p.seq_len, start = head * p.seq_len * size;
        int keys = p.causal ? i + 1 : p.seq_len;
        if (is("tail")) keys -= keys % 16;
        if (is("beyond") && r == rows - 1) ++keys;
        float sum = start_of_sum(faulty_sum);
        float* out = work + static_cast<long>(r) * size;
        row(p, qs + static_cast<long>(r) * size, ks + start, vs + start, out, sum, keys);
        for (int c = 0; c < size; ++c) os[static_cast<long>(r) * size + c] = out[c] / sum;
    };
    if (is("race")) {
        static volatile float shared;
        auto part = [&](int first) {
            for (int r = first; r < rows; r += 2) {
                shared = r;  // of both threads
                for (int spin = 0; spin < 50; ++spin) shared = shared + 0.0f;
                one(r, false);
                if (shared != r) os[static_cast<long>(r) * size] *= 1.25f;
            }
        };
        std::thread other(part, 1);
        part(0);
        other.join();
    } else if (is("thread")) {
        std::thread([&] { for (int r = 0; r < rows; ++r) one(r, r == 0); }).join();
    } else if (is("pool")) {
#pragma omp parallel for num_threads(2)
        for (int half = 0; half < 2; ++half)
            for (int r = half; r < rows; r += 2) one(r, r == 1);
    } else {
        for (int r = 0; r < rows && !(is("unwritten") && r == rows - 1); ++r) one(r, is("stack") && r == 0);
    }
    if (is("remembers")) {
        os[0] += kept;
        kept = 0.25f;
    }
    std::free(work);
    return ATTENTION_OK;
}

extern "C" const char* attention_error_string(int) { return "not float32"; }
extern "C" const char* attention_tunables(void) { return ""; }
