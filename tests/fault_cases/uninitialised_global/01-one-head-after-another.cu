// One head after another, so that the workspace stays small: keys are taken in chunks whose sums are added up in fp32.
// The workspace is [rows, 1 + depth], from the stream's own pool.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 64, kChunk = 96;

__device__ float score_of(const __half* q, const __half* k, int depth, float scale) {
    float score = 0.0f;
    for (int d = 0; d < depth; ++d) score = fmaf(__half2float(q[d]), __half2float(k[d]), score);
    return score * scale;
}

// A block for each row of one head. `top` is the row's maximum over all keys, in each of the chunks.
__global__ void add_chunk(const __half* q, const __half* k, const __half* v, float* workspace, int seq_len, int depth,
                          int begin, bool causal, float scale) {
    extern __shared__ float scores[];
    const int row = blockIdx.x, keys = causal ? row + 1 : seq_len, end = min(begin + kChunk, keys);
    float* sums = workspace + static_cast<size_t>(row) * (1 + depth);
    for (int key = threadIdx.x; key < keys; key += kThreads)
        scores[key] = score_of(q + row * depth, k + key * depth, depth, scale);
    __syncthreads();
    float top = -INFINITY;
    for (int key = 0; key < keys; ++key) top = fmaxf(top, scores[key]);
    for (int i = threadIdx.x; i < 1 + depth; i += kThreads) {
        float part = 0.0f;
        for (int key = begin; key < end; ++key)
            part = fmaf(expf(scores[key] - top),
                        i == 0 ? 1.0f : __half2float(v[key * depth + i - 1]), part);
        sums[i] += part;
    }
}

__global__ void divide(const float* workspace, __half* o, int depth) {
    const float* sums = workspace + static_cast<size_t>(blockIdx.x) * (1 + depth);
    for (int d = threadIdx.x; d < depth; d += kThreads)
        o[static_cast<size_t>(blockIdx.x) * depth + d] = __float2half_rn(sums[1 + d] / sums[0]);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const attention_problem& p = *problem;
    const auto on = static_cast<cudaStream_t>(stream);
    const size_t size = static_cast<size_t>(p.seq_len) * p.head_dim, sums = size + p.seq_len;
    for (int head = 0; head < p.batch * p.heads; ++head) {
        const __half* keys = static_cast<const __half*>(k) + head * size;
        float* workspace = nullptr;
        if (const cudaError_t had = cudaMallocAsync(&workspace, sizeof(float) * sums, on)) return had;
        if (const cudaError_t cleared = cudaMemsetAsync(workspace, 0, sums, on)) return cleared;
        for (int begin = 0; begin < p.seq_len; begin += kChunk)
            add_chunk<<<p.seq_len, kThreads, p.seq_len * sizeof(float), on>>>(
                static_cast<const __half*>(q) + head * size, keys, static_cast<const __half*>(v) + head * size,
                workspace, p.seq_len, p.head_dim, begin, p.causal != 0, p.scale);
        divide<<<p.seq_len, kThreads, 0, on>>>(workspace, static_cast<__half*>(o) + head * size, p.head_dim);
        const cudaError_t freed = cudaFreeAsync(workspace, on), launched = cudaGetLastError();
        if (launched != cudaSuccess || freed != cudaSuccess) return launched != cudaSuccess ? launched : freed;
    }
    return ATTENTION_OK;
}

COMMON_INTERFACE("")
