// Blocks take rows one by one, by a counter in global memory: long causal rows hold nobody up. Each call has a counter
// of its own, which begins at zero.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 128, kMostBlocks = 264;

// A block computes rows while there are any. q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, unsigned* next, unsigned rows,
                        int seq_len, int depth, bool causal, float scale) {
    extern __shared__ float scores[];
    __shared__ unsigned ticket;
    for (unsigned taken = 0; taken < rows; ++taken) {
        if (threadIdx.x == 0) ticket = atomicAdd(next, 1u);
        __syncthreads();
        const unsigned mine = ticket;
        if (mine >= rows) return;
        const int row = seq_len - 1 - static_cast<int>(mine % seq_len), keys = causal ? row + 1 : seq_len;
        const size_t head = static_cast<size_t>(mine / seq_len) * seq_len * depth;
        const __half* query = q + head + static_cast<size_t>(row) * depth;
        for (int key = threadIdx.x; key < keys; key += kThreads) {
            float score = 0.0f;
            for (int d = 0; d < depth; ++d)
                score = fmaf(__half2float(query[d]), __half2float(k[head + key * depth + d]), score);
            scores[key] = score * scale;
        }
        __syncthreads();
        float top = -INFINITY, sum = 0.0f;
        for (int key = 0; key < keys; ++key) top = fmaxf(top, scores[key]);
        for (int key = 0; key < keys; ++key) sum += expf(scores[key] - top);
        for (int d = threadIdx.x; d < depth; d += kThreads) {
            float out = 0.0f;
            for (int key = 0; key < keys; ++key)
                out = fmaf(expf(scores[key] - top), __half2float(v[head + key * depth + d]), out);
            o[head + static_cast<size_t>(row) * depth + d] = __float2half_rn(out / sum);
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
    const auto on = static_cast<cudaStream_t>(stream);
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len;
    unsigned* next = nullptr;
    if (const cudaError_t had = cudaMallocAsync(&next, sizeof(unsigned), on)) return had;
    if (const cudaError_t cleared = cudaMemsetAsync(next, 0, sizeof(unsigned), on)) return cleared;
    forward<<<rows < kMostBlocks ? rows : kMostBlocks, kThreads, p.seq_len * sizeof(float), on>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), next, rows, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    const cudaError_t freed = cudaFreeAsync(next, on), launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : freed;
}

COMMON_INTERFACE("")
