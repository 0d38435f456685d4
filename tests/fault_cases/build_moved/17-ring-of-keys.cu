// A ring of scores in shared memory, of RING keys: half of it is filled, then used, while the other half is still warm.
// RING is tuned for each build. The inner loop has no division: a mask gives the place.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 64;

#ifndef RING
#define RING 64
#endif

// A block computes one row, a thread a column of it. q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, int depth,
                        bool causal, float scale) {
    __shared__ float ring[RING];
    const int row = static_cast<int>(blockIdx.x % seq_len), keys = causal ? row + 1 : seq_len, part = RING / 2;
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    q += static_cast<size_t>(blockIdx.x) * depth, o += static_cast<size_t>(blockIdx.x) * depth, k += head, v += head;
    float top = -INFINITY, sum = 0.0f, out = 0.0f;
    for (int first = 0; first < keys; first += part) {
        const int last = min(first + part, keys);
        for (int key = first + threadIdx.x; key < last; key += kThreads) {
            float score = 0.0f;
            for (int d = 0; d < depth; ++d)
                score = fmaf(__half2float(q[d]), __half2float(k[static_cast<size_t>(key) * depth + d]), score);
            ring[key % RING] = score * scale;
        }
        __syncthreads();
        float largest = top;
        for (int key = first; key < last; ++key) largest = fmaxf(largest, ring[key & (RING - 1)]);
        const float shrink = expf(top - largest);
        sum *= shrink, out *= shrink, top = largest;
        for (int key = first; key < last; ++key) {
            const float weight = expf(ring[key & (RING - 1)] - top);
            sum += weight;
            out = fmaf(weight, __half2float(v[static_cast<size_t>(key) * depth + threadIdx.x]), out);
        }
        __syncthreads();
    }
    o[threadIdx.x] = __float2half_rn(out / sum);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim != kThreads) return ATTENTION_ERROR_HEAD_DIM;
    forward<<<static_cast<unsigned>(p.batch) * p.heads * p.seq_len, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
