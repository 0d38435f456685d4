// Keys are split over blocks: each adds its weights and outputs to the row's in a fp32 workspace, and a last kernel
// divides. The workspace is [rows, 1 + depth], from the stream's own pool, which keeps what it was given back.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kThreads = 128, kSplits = 2;

__device__ float score_of(const __half* q, const __half* k, int depth, float scale) {
    float score = 0.0f;
    for (int d = 0; d < depth; ++d) score = fmaf(__half2float(q[d]), __half2float(k[d]), score);
    return score * scale;
}

// Grid: rows, kSplits. The row's maximum is found by each of its blocks, over all keys.
__global__ void add_up(const __half* q, const __half* k, const __half* v, float* workspace, int seq_len, int depth,
                       bool causal, float scale) {
    extern __shared__ float scores[];
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    const int row = static_cast<int>(blockIdx.x % seq_len), keys = causal ? row + 1 : seq_len;
    q += head + static_cast<size_t>(row) * depth, k += head, v += head;
    float* sums = workspace + static_cast<size_t>(blockIdx.x) * (1 + depth);
    for (int key = threadIdx.x; key < keys; key += kThreads)
        scores[key] = score_of(q, k + static_cast<size_t>(key) * depth, depth, scale);
    __syncthreads();
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < keys; ++key) top = fmaxf(top, scores[key]);
    for (int key = blockIdx.y; key < keys; key += kSplits) sum += expf(scores[key] - top);
    if (threadIdx.x == 0) atomicAdd(sums, sum);
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = blockIdx.y; key < keys; key += kSplits)
            out = fmaf(expf(scores[key] - top), __half2float(v[static_cast<size_t>(key) * depth + d]), out);
        atomicAdd(sums + 1 + d, out);
    }
}

__global__ void divide(const float* workspace, __half* o, int depth) {
    const float* sums = workspace + static_cast<size_t>(blockIdx.x) * (1 + depth);
    for (int d = threadIdx.x; d < depth; d += kThreads)
        o[static_cast<size_t>(blockIdx.x) * depth + d] = __float2half_rn(sums[1 + d] / sums[0]);
}

// Once: the pool gives nothing back to the driver while the process lives.
cudaError_t keep_memory() {
    static const cudaError_t kept = [] {
        int device = 0;
        cudaMemPool_t pool = nullptr;
        std::uint64_t most = UINT64_MAX;
        if (const cudaError_t error = cudaGetDevice(&device)) return error;
        if (const cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, device)) return error;
        return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most);
    }();
    return kept;
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
    if (const cudaError_t error = keep_memory()) return error;
    float* workspace = nullptr;
    const cudaError_t had = cudaMallocAsync(&workspace, sizeof(float) * rows * (1 + p.head_dim), on);
    if (had != cudaSuccess) return had;
    add_up<<<dim3(rows, kSplits), kThreads, p.seq_len * sizeof(float), on>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v), workspace,
        p.seq_len, p.head_dim, p.causal != 0, p.scale);
    divide<<<rows, kThreads, 0, on>>>(workspace, static_cast<__half*>(o), p.head_dim);
    const cudaError_t freed = cudaFreeAsync(workspace, on), launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : freed;
}

COMMON_INTERFACE("")
