// Keys are split over blocks that add to the row's sums as integers, in units of 2^-26: their order does not matter
// then, and every run gives the same bits. Weights are relative to the row's maximum, so that none is above one.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 128, kSplits = 4;
constexpr float kUnits = 67108864.0f;

__device__ float score_of(const __half* q, const __half* k, int depth, float scale) {
    float score = 0.0f;
    for (int d = 0; d < depth; ++d) score = fmaf(__half2float(q[d]), __half2float(k[d]), score);
    return score * scale;
}

// Grid: rows, kSplits. workspace: [rows, depth + 1], whose last is the sum of weights, in units of 2^-16.
__global__ void add_up(const __half* q, const __half* k, const __half* v, int* workspace, int seq_len, int depth,
                       bool causal, float scale) {
    extern __shared__ float weights[];
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    const int row = static_cast<int>(blockIdx.x % seq_len), keys = causal ? row + 1 : seq_len;
    q += head + static_cast<size_t>(row) * depth, k += head, v += head;
    workspace += static_cast<size_t>(blockIdx.x) * (depth + 1);
    for (int key = threadIdx.x; key < keys; key += kThreads)
        weights[key] = score_of(q, k + static_cast<size_t>(key) * depth, depth, scale);
    __syncthreads();
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < keys; ++key) top = fmaxf(top, weights[key]);
    for (int key = blockIdx.y; key < keys; key += kSplits) sum += expf(weights[key] - top);
    if (threadIdx.x == 0) atomicAdd(workspace + depth, __float2int_rn(sum * 65536.0f));
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = blockIdx.y; key < keys; key += kSplits)
            out = fmaf(expf(weights[key] - top), __half2float(v[static_cast<size_t>(key) * depth + d]), out);
        atomicAdd(workspace + d, __float2int_rn(out * kUnits));
    }
}

__global__ void divide(const int* workspace, __half* o, int depth) {
    workspace += static_cast<size_t>(blockIdx.x) * (depth + 1);
    const float sum = static_cast<float>(workspace[depth]) / 65536.0f;
    for (int d = threadIdx.x; d < depth; d += kThreads)
        o[static_cast<size_t>(blockIdx.x) * depth + d] =
            __float2half_rn(static_cast<float>(workspace[d]) / kUnits / sum);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const auto on = static_cast<cudaStream_t>(stream);
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len;
    const size_t bytes = sizeof(int) * rows * (1 + p.head_dim);
    int* workspace = nullptr;
    if (const cudaError_t error = cudaMallocAsync(&workspace, bytes, on)) return error;
    if (const cudaError_t error = cudaMemsetAsync(workspace, 0, bytes, on)) return error;
    add_up<<<dim3(rows, kSplits), kThreads, p.seq_len * sizeof(float), on>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v), workspace,
        p.seq_len, p.head_dim, p.causal != 0, p.scale);
    divide<<<rows, kThreads, 0, on>>>(workspace, static_cast<__half*>(o), p.head_dim);
    const cudaError_t freed = cudaFreeAsync(workspace, on), launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : freed;
}

COMMON_INTERFACE("")
