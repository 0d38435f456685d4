// Four rows a block. Their weights lie in shared memory, and so do their totals, so that all threads can take part in
// each tile of values.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 128, kRows = kThreads / 32, kTile = 32, kMostDepth = 128;

__device__ float largest_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}
__device__ float sum_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, int depth,
                        bool causal, float scale) {
    __shared__ float totals[kRows * kMostDepth], sums[kRows];
    extern __shared__ float weights[];  // [kRows, seq_len]
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int blocks = (seq_len + kRows - 1) / kRows, first = static_cast<int>(blockIdx.x % blocks) * kRows;
    const size_t head = static_cast<size_t>(blockIdx.x / blocks) * seq_len * depth;
    q += head, k += head, v += head, o += head;
    if (thread < kRows * depth) totals[thread] = 0.0f;
    const int row = min(first + warp, seq_len - 1);
    float top = -INFINITY, sum = 0.0f;
    for (int key = lane; key < seq_len; key += 32) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d)
            score = fmaf(__half2float(q[row * depth + d]), __half2float(k[key * depth + d]), score);
        score = causal && key > row ? -INFINITY : score * scale;
        weights[warp * seq_len + key] = score;
        top = fmaxf(top, score);
    }
    top = largest_of(top);
    for (int key = lane; key < seq_len; key += 32) {
        const float weight = expf(weights[warp * seq_len + key] - top);
        weights[warp * seq_len + key] = weight;
        sum += weight;
    }
    sum = sum_of(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    for (int begin = 0; begin < seq_len; begin += kTile) {
        const int end = min(begin + kTile, seq_len);
        for (int i = thread; i < kRows * depth; i += kThreads) {
            float part = 0.0f;
            for (int key = begin; key < end; ++key)
                part = fmaf(weights[i / depth * seq_len + key], __half2float(v[key * depth + i % depth]), part);
            totals[i] += part;
        }
    }
    for (int i = thread; i < kRows * depth && first + i / depth < seq_len; i += kThreads)
        o[first * depth + i] = __float2half_rn(totals[i] / sums[i / depth]);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len > 2048) return ATTENTION_ERROR_TOO_LARGE;
    const attention_problem& p = *problem;
    const unsigned blocks = static_cast<unsigned>(p.batch) * p.heads * ((p.seq_len + kRows - 1) / kRows);
    forward<<<blocks, kThreads, sizeof(float) * kRows * p.seq_len, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
