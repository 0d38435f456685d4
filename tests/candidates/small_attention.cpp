// A plain attention on the CPU behind csrc/attention.h, with one fault chosen at compile time, for tests of what finds
// faults. FAULT: NONE, BEYOND (writes one element too far), RACE (threads share a sum), UNSET (reads a variable that
// nobody set), OVERFLOW (of a signed integer), REFUSES, CRASHES, HANGS, OPENMP (none; uses its runtime).
#include "attention.h"

#include <climits>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef FAULT_OPENMP
#include <omp.h>
#endif

namespace {

#ifdef SUMS_DOUBLE
using Sum = double;
#else
using Sum = float;
#endif

volatile int largest = INT_MAX;
int rows_done = 0;

void rows_of_head(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int first,
                  int step) {
    std::vector<Sum> weights(p.seq_len);
    for (int i = first; i < p.seq_len; i += step) {
        const int keys = p.causal ? i + 1 : p.seq_len;
        Sum most = -INFINITY, sum = 0;
        for (int j = 0; j < keys; ++j) {
            Sum score = 0;
            for (int d = 0; d < p.head_dim; ++d) score += q[i * p.head_dim + d] * k[j * p.head_dim + d];
            weights[j] = score * p.scale;
            most = weights[j] > most ? weights[j] : most;
        }
        for (int j = 0; j < keys; ++j) sum += weights[j] = std::exp(weights[j] - most);
        for (int d = 0; d < p.head_dim; ++d) {
            Sum result = 0;
            for (int j = 0; j < keys; ++j) result += weights[j] * v[j * p.head_dim + d];
            o[i * p.head_dim + d] = static_cast<float>(result / sum);
        }
#ifdef FAULT_RACE
        ++rows_done;
#endif
    }
}

}  // namespace

extern "C" int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v,
                                 void* o, void*) {
    const attention_problem p = *problem;
    if (p.dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
#ifdef FAULT_REFUSES
    return ATTENTION_ERROR_HEAD_DIM;
#endif
#ifdef FAULT_CRASHES
    std::abort();
#endif
#ifdef FAULT_HANGS
    while (largest) std::this_thread::yield();
#endif
    const long head = static_cast<long>(p.seq_len) * p.head_dim;
    float* out = static_cast<float*>(o);
    for (int h = 0; h < p.batch * p.heads; ++h) {
        const float* in[3] = {static_cast<const float*>(q) + h * head, static_cast<const float*>(k) + h * head,
                              static_cast<const float*>(v) + h * head};
        std::vector<std::thread> workers;
        const int count = p.threads > 1 ? p.threads : 1;
        for (int t = 0; t < count; ++t)
            workers.emplace_back([=] { rows_of_head(p, in[0], in[1], in[2], out + h * head, t, count); });
        for (std::thread& worker : workers) worker.join();
    }
#ifdef FAULT_BEYOND
    out[p.batch * p.heads * head] = 0;
#endif
#ifdef FAULT_UNSET
    volatile int unset[4];
    if (unset[p.batch % 4] != 0) out[0] += 1;
#endif
#ifdef FAULT_OVERFLOW
    largest = largest + p.batch;
#endif
#ifdef FAULT_OPENMP
    if (omp_get_max_threads() < 1) return ATTENTION_ERROR_THREADS;
#endif
    return rows_done < 0 ? ATTENTION_ERROR_THREADS : ATTENTION_OK;
}

extern "C" const char* attention_error_string(int code) { return code == ATTENTION_ERROR_HEAD_DIM ? "no such head_dim" : "refused"; }
extern "C" const char* attention_tunables(void) { return ""; }
