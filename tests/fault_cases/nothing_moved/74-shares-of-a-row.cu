// Keys are dealt out to eight blocks a row, so that few rows fill the device; each block adds its share to the output.
// All eight need the row's maximum and its sum: to compute every score anew is cheaper than to wait for one another.
#include "common.h"

#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 64, kShares = 8;

// q, k, v, o: [heads in all, seq_len, depth]; o is zero before.
__global__ void forward(const float* q, const float* k, const float* v, float* o, int seq_len, int depth, bool causal,
                        float scale) {
    extern __shared__ float weights[];
    const int share = static_cast<int>(blockIdx.x % kShares), at = static_cast<int>(blockIdx.x / kShares);
    const int row = at % seq_len, keys = causal ? row + 1 : seq_len;
    const size_t head = static_cast<size_t>(at / seq_len) * seq_len * depth;
    q += head + static_cast<size_t>(row) * depth, k += head, v += head;
    o += head + static_cast<size_t>(row) * depth;
    for (int key = threadIdx.x; key < keys; key += kThreads) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d) score = fmaf(q[d], k[static_cast<size_t>(key) * depth + d], score);
        weights[key] = score * scale;
    }
    __syncthreads();
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < keys; ++key) top = fmaxf(top, weights[key]);
    __syncthreads();
    for (int key = threadIdx.x; key < keys; key += kThreads) weights[key] = expf(weights[key] - top);
    __syncthreads();
    for (int key = 0; key < keys; ++key) sum += weights[key];
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = share; key < keys; key += kShares)
            out = fmaf(weights[key], v[static_cast<size_t>(key) * depth + d], out);
        atomicAdd(o + d, out / sum);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const attention_problem& p = *problem;
    const auto on = static_cast<cudaStream_t>(stream);
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len;
    const size_t bytes = static_cast<size_t>(rows) * p.head_dim * sizeof(float);
    if (const cudaError_t error = cudaMemsetAsync(o, 0, bytes, on)) return error;
    forward<<<rows * kShares, kThreads, p.seq_len * sizeof(float), on>>>(
        static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v),
        static_cast<float*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("SHARES=8")
