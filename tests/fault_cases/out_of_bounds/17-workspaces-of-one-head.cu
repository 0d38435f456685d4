// Two stages. The first leaves every row's maximum and sum in workspaces from the stream's own pool; the second
// computes the weights again and adds up the outputs.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 128;

__device__ float score_of(const __half* q, const __half* k, int depth, float scale) {
    float score = 0.0f;
    for (int d = 0; d < depth; ++d) score = fmaf(__half2float(q[d]), __half2float(k[d]), score);
    return score * scale;
}

// A warp computes one row.
__global__ void measure(const __half* q, const __half* k, float* sums, float* tops, int seq_len, int depth, bool causal,
                        float scale) {
    const int row = static_cast<int>(blockIdx.x % seq_len), keys = causal ? row + 1 : seq_len;
    q += static_cast<size_t>(blockIdx.x) * depth, k += static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    float top = -INFINITY, sum = 0.0f;
    for (int key = threadIdx.x; key < keys; key += 32)
        top = fmaxf(top, score_of(q, k + static_cast<size_t>(key) * depth, depth, scale));
    for (int distance = 16; distance > 0; distance /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
    for (int key = threadIdx.x; key < keys; key += 32)
        sum += expf(score_of(q, k + static_cast<size_t>(key) * depth, depth, scale) - top);
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum, tops[blockIdx.x] = top;
}

__global__ void combine(const __half* q, const __half* k, const __half* v, __half* o, const float* sums,
                        const float* tops, int seq_len, int depth, bool causal, float scale) {
    extern __shared__ float weights[];
    const int row = static_cast<int>(blockIdx.x % seq_len), keys = causal ? row + 1 : seq_len;
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    q += static_cast<size_t>(blockIdx.x) * depth, o += static_cast<size_t>(blockIdx.x) * depth, k += head, v += head;
    for (int key = threadIdx.x; key < keys; key += kThreads)
        weights[key] = expf(score_of(q, k + static_cast<size_t>(key) * depth, depth, scale) - tops[blockIdx.x]);
    __syncthreads();
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = 0; key < keys; ++key)
            out = fmaf(weights[key], __half2float(v[static_cast<size_t>(key) * depth + d]), out);
        o[d] = __float2half_rn(out / sums[blockIdx.x]);
    }
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
    const auto *from = static_cast<const __half*>(q), *keys = static_cast<const __half*>(k);
    float *sums = nullptr, *tops = nullptr;
    const size_t bytes = sizeof(float) * p.batch * p.seq_len;  // one of each for every row
    if (const cudaError_t error = cudaMallocAsync(&sums, bytes, on)) return error;
    if (const cudaError_t error = cudaMallocAsync(&tops, bytes, on)) return error;
    measure<<<rows, 32, 0, on>>>(from, keys, sums, tops, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    combine<<<rows, kThreads, p.seq_len * sizeof(float), on>>>(from, keys, static_cast<const __half*>(v),
                                                               static_cast<__half*>(o), sums, tops, p.seq_len,
                                                               p.head_dim, p.causal != 0, p.scale);
    const cudaError_t first = cudaFreeAsync(sums, on), second = cudaFreeAsync(tops, on), launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : first != cudaSuccess ? first : second;
}

COMMON_INTERFACE("")
