// One maximum for all rows of a head: a softmax does not depend on it, and rows need no pass of their own for it. The
// first kernel finds it, a block for each head.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kMostDepth = 128;

__device__ float score_of(const __half* q, const __half* k, int depth, float scale) {
    float score = 0.0f;
    for (int d = 0; d < depth; ++d) score = fmaf(__half2float(q[d]), __half2float(k[d]), score);
    return score * scale;
}

__global__ void find_tops(const __half* q, const __half* k, float* tops, int seq_len, int depth, bool causal,
                          float scale) {
    __shared__ float found[kThreads];
    const size_t head = static_cast<size_t>(blockIdx.x) * seq_len * depth;
    float top = -INFINITY;
    for (int row = 0; row < seq_len; ++row)
        for (int key = threadIdx.x; key < (causal ? row + 1 : seq_len); key += kThreads)
            top = fmaxf(top, score_of(q + head + row * depth, k + head + key * depth, depth, scale));
    found[threadIdx.x] = top;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) found[threadIdx.x] = fmaxf(found[threadIdx.x], found[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) tops[blockIdx.x] = found[0];
}

// Block: 32 x kWarps, a warp for each row. A lane owns one key of 32, then depth / 32 columns of the output.
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, const float* tops, int seq_len,
                        int depth, bool causal, float scale) {
    const int lane = threadIdx.x, blocks = (seq_len + kWarps - 1) / kWarps;
    const int row = static_cast<int>(blockIdx.x % blocks) * kWarps + threadIdx.y, keys = causal ? row + 1 : seq_len;
    if (row >= seq_len) return;
    const size_t head = static_cast<size_t>(blockIdx.x / blocks) * seq_len * depth;
    const float top = tops[blockIdx.x / blocks];
    q += head + row * depth, k += head, v += head, o += head + row * depth;
    float sum = 0.0f, out[kMostDepth / 32] = {};
    for (int begin = 0; begin < keys; begin += 32) {
        const int key = begin + lane;
        const float weight = key < keys ? expf(score_of(q, k + key * depth, depth, scale) - top) : 0.0f;
        for (int j = 0; j < min(32, keys - begin); ++j) {
            const float share = __shfl_sync(0xffffffffu, weight, j);
            sum += share;
            for (int i = 0; i < depth / 32; ++i)
                out[i] = fmaf(share, __half2float(v[(begin + j) * depth + i * 32 + lane]), out[i]);
        }
    }
    for (int i = 0; i < depth / 32; ++i) o[i * 32 + lane] = __float2half_rn(out[i] / sum);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    if (p.head_dim % 32 != 0) return ATTENTION_ERROR_HEAD_DIM;
    const auto on = static_cast<cudaStream_t>(stream);
    const auto *queries = static_cast<const __half*>(q), *keys = static_cast<const __half*>(k);
    const unsigned heads = static_cast<unsigned>(p.batch) * p.heads, blocks = (p.seq_len + kWarps - 1) / kWarps;
    float* tops = nullptr;
    if (const cudaError_t had = cudaMallocAsync(&tops, sizeof(float) * heads, on)) return had;
    find_tops<<<heads, kThreads, 0, on>>>(queries, keys, tops, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    forward<<<heads * blocks, dim3(32, kWarps), 0, on>>>(queries, keys, static_cast<const __half*>(v),
                                                         static_cast<__half*>(o), tops, p.seq_len, p.head_dim,
                                                         p.causal != 0, p.scale);
    const cudaError_t freed = cudaFreeAsync(tops, on), launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : freed;
}

COMMON_INTERFACE("")
