// Scores of one row in shared memory. Blocks are RESIDENT at most, and each goes on to another row while there is one.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

#ifndef RESIDENT
#define RESIDENT 65535
#endif

constexpr int kThreads = 128;

// A block computes a row, and each RESIDENT-th one behind it. q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, unsigned rows, int seq_len,
                        int depth, bool causal, float scale) {
    extern __shared__ float scores[];
    float sum = 0.0f;
    for (unsigned at = blockIdx.x; at < rows; at += RESIDENT) {
        const size_t head = static_cast<size_t>(at / seq_len) * seq_len * depth;
        const int row = static_cast<int>(at % seq_len), keys = causal ? row + 1 : seq_len;
        const __half* query = q + head + static_cast<size_t>(row) * depth;
        __half* const to = o + head + static_cast<size_t>(row) * depth;
        for (int key = threadIdx.x; key < keys; key += kThreads) {
            float score = 0.0f;
            for (int d = 0; d < depth; ++d)
                score = fmaf(__half2float(query[d]), __half2float(k[head + key * depth + d]), score);
            scores[key] = score * scale;
        }
        __syncthreads();
        float top = -INFINITY;
        for (int key = 0; key < keys; ++key) top = fmaxf(top, scores[key]);
        for (int key = 0; key < keys; ++key) sum += expf(scores[key] - top);
        for (int d = threadIdx.x; d < depth; d += kThreads) {
            float out = 0.0f;
            for (int key = 0; key < keys; ++key)
                out = fmaf(expf(scores[key] - top), __half2float(v[head + key * depth + d]), out);
            to[d] = __float2half_rn(out / sum);
        }
        __syncthreads();
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const attention_problem& p = *problem;
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len;
    const unsigned blocks = rows < RESIDENT ? rows : RESIDENT;
    forward<<<blocks, kThreads, p.seq_len * sizeof(float), static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), rows, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
