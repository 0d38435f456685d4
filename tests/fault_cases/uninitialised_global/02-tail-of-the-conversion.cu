// V is converted to fp32 first, once for all rows, into a workspace from the stream's own pool.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 128, kEach = 256;  // elements that a block converts

__global__ void widen(const __half* from, float* to) {
    for (int i = threadIdx.x; i < kEach; i += kThreads) {
        const size_t at = static_cast<size_t>(blockIdx.x) * kEach + i;
        to[at] = __half2float(from[at]);
    }
}

// A block computes one row. q, k, o: [heads in all, seq_len, depth]; so is v, in fp32.
__global__ void forward(const __half* q, const __half* k, const float* v, __half* o, int seq_len, int depth,
                        bool causal, float scale) {
    extern __shared__ float scores[];
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    const int row = static_cast<int>(blockIdx.x % seq_len), keys = causal ? row + 1 : seq_len;
    q += head + static_cast<size_t>(row) * depth, o += head + static_cast<size_t>(row) * depth, k += head, v += head;
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
            out = fmaf(expf(scores[key] - top), v[static_cast<size_t>(key) * depth + d], out);
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
    const auto on = static_cast<cudaStream_t>(stream);
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len, elements = rows * p.head_dim;
    float* values = nullptr;
    const cudaError_t had = cudaMallocAsync(&values, elements * sizeof(float), on);
    if (had != cudaSuccess) return had;
    widen<<<elements / kEach, kThreads, 0, on>>>(static_cast<const __half*>(v), values);
    forward<<<rows, kThreads, p.seq_len * sizeof(float), on>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), values, static_cast<__half*>(o), p.seq_len,
        p.head_dim, p.causal != 0, p.scale);
    const cudaError_t freed = cudaFreeAsync(values, on), launched = cudaGetLastError();
    return launched != cudaSuccess ? launched : freed;
}

COMMON_INTERFACE("")
