// A warp computes one row: a lane owns every 32nd key, and then depth / 32 columns of the output.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kRows = 4, kMostKeys = 1024;

__device__ float largest_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}
__device__ float sum_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_down_sync(0xffffffffu, x, distance);
    return x;
}

// Block: 32 x kRows. q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int rows, int seq_len, int depth,
                        bool causal, float scale) {
    __shared__ float weights[kRows][kMostKeys];
    const int lane = threadIdx.x, at = blockIdx.x * kRows + threadIdx.y;
    if (at >= rows) return;
    const size_t head = static_cast<size_t>(at / seq_len) * seq_len * depth;
    const int row = at % seq_len, keys = causal ? row + 1 : seq_len;
    float* const mine = weights[threadIdx.y];
    q += static_cast<size_t>(at) * depth, o += static_cast<size_t>(at) * depth, k += head, v += head;
    float top = -INFINITY, sum = 0.0f;
    for (int key = lane; key < keys; key += 32) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d)
            score = fmaf(__half2float(q[d]), __half2float(k[static_cast<size_t>(key) * depth + d]), score);
        mine[key] = score * scale;
        top = fmaxf(top, mine[key]);
    }
    top = largest_of(top);
    for (int key = lane; key < keys; key += 32) {
        mine[key] = expf(mine[key] - top);
        sum += mine[key];
    }
    const float total = sum_of(sum);
    __syncwarp();
    for (int d = lane; d < depth; d += 32) {
        float out = 0.0f;
        for (int key = 0; key < keys; ++key)
            out = fmaf(mine[key], __half2float(v[static_cast<size_t>(key) * depth + d]), out);
        o[d] = __float2half_rn(out / total);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.seq_len > kMostKeys) return ATTENTION_ERROR_TOO_LARGE;
    const int rows = p.batch * p.heads * p.seq_len;
    forward<<<(rows + kRows - 1) / kRows, dim3(32, kRows), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), rows, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
