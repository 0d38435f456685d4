// A block computes one row. ROWS_AT_A_TIME bounds a launch, so that other work of the device gets its turn.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>

namespace {

constexpr int kThreads = 128;

#ifndef ROWS_AT_A_TIME
#define ROWS_AT_A_TIME 65536
#endif

// q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int first, int seq_len, int depth,
                        bool causal, float scale) {
    extern __shared__ float scores[];
    const int at = first + static_cast<int>(blockIdx.x), row = at % seq_len, keys = causal ? row + 1 : seq_len;
    const size_t head = static_cast<size_t>(at / seq_len) * seq_len * depth;
    q += static_cast<size_t>(at) * depth, o += static_cast<size_t>(at) * depth, k += head, v += head;
    for (int key = threadIdx.x; key < keys; key += kThreads) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d)
            score = fmaf(__half2float(q[d]), __half2float(k[static_cast<size_t>(key) * depth + d]), score);
        scores[key] = score * scale;
    }
    __syncthreads();
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < keys; ++key) top = fmaxf(top, scores[key]);
    for (int key = 0; key < keys; ++key) sum += expf(scores[key] - top);
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = 0; key < keys; ++key)
            out = fmaf(expf(scores[key] - top), __half2float(v[static_cast<size_t>(key) * depth + d]), out);
        o[d] = __float2half_rn(out / sum);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const int rows = p.batch * p.heads * p.seq_len;
    for (int first = 0; first < rows; first += ROWS_AT_A_TIME)
        forward<<<std::min(ROWS_AT_A_TIME, rows - first), kThreads, p.seq_len * sizeof(float),
                  static_cast<cudaStream_t>(stream)>>>(
            static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
            static_cast<__half*>(o), first, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
