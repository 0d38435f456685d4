// Tiles of keys and values go through a ring in shared memory, copied ahead of their use.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

namespace {

#ifndef STAGES
#define STAGES 2
#endif

constexpr int kRows = 8, kTile = 32, kDepth = 64, kStages = STAGES;
constexpr int kStride = kDepth + 8;  // keeps rows apart in the banks, and aligned to sixteen bytes

__device__ float largest_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}
__device__ float sum_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// Block: 32 x kRows. A lane owns one key of the tile, then two columns of the output.
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, bool causal,
                        float scale) {
    __shared__ __align__(16) __half keys[kStages][kTile][kStride], values[kStages][kTile][kStride];
    __shared__ float queries[kRows][kDepth];
    const int lane = threadIdx.x, warp = threadIdx.y, thread = warp * 32 + lane;
    const int blocks = (seq_len + kRows - 1) / kRows, first = static_cast<int>(blockIdx.x % blocks) * kRows;
    const size_t head = static_cast<size_t>(blockIdx.x / blocks) * seq_len * kDepth;
    const int row = min(first + warp, seq_len - 1), seen = causal ? min(first + kRows, seq_len) : seq_len;
    const int tiles = (seen + kTile - 1) / kTile;
    q += head, k += head, v += head, o += head;
    for (int d = lane; d < kDepth; d += 32) queries[warp][d] = __half2float(q[row * kDepth + d]) * scale;
    __syncthreads();
    // Eight threads copy a row of 64, sixteen bytes each. Rows behind the last one are copies of it, and not seen.
    const auto fetch = [&](int tile) {
        if (tile < tiles) {
            const int slot = thread / 8, at = thread % 8 * 8;
            const int from = min(tile * kTile + slot, seq_len - 1) * kDepth + at;
            __pipeline_memcpy_async(&keys[tile % kStages][slot][at], k + from, 16);
            __pipeline_memcpy_async(&values[tile % kStages][slot][at], v + from, 16);
        }
        __pipeline_commit();
    };
    for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);
    float top = -INFINITY, sum = 0.0f, out[2] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        __pipeline_wait_prior(kStages - 2);
        __syncthreads();
        fetch(tile + kStages - 1);
        const int stage = tile % kStages, key = tile * kTile + lane;
        float score = 0.0f;
        for (int d = 0; d < kDepth; ++d) score = fmaf(queries[warp][d], __half2float(keys[stage][lane][d]), score);
        if (key >= seq_len || (causal && key > row)) score = -INFINITY;
        const float largest = fmaxf(top, largest_of(score));
        const float weight = expf(score - largest), shrink = expf(top - largest);
        top = largest;
        sum = fmaf(sum, shrink, sum_of(weight));
        out[0] *= shrink, out[1] *= shrink;
        for (int j = 0; j < kTile; ++j) {
            const float share = __shfl_sync(0xffffffffu, weight, j);
            out[0] = fmaf(share, __half2float(values[stage][j][lane]), out[0]);
            out[1] = fmaf(share, __half2float(values[stage][j][lane + 32]), out[1]);
        }
    }
    if (first + warp >= seq_len) return;
    o[row * kDepth + lane] = __float2half_rn(out[0] / sum);
    o[row * kDepth + lane + 32] = __float2half_rn(out[1] / sum);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (problem->head_dim != kDepth) return ATTENTION_ERROR_HEAD_DIM;
    const attention_problem& p = *problem;
    const unsigned blocks = static_cast<unsigned>(p.batch) * p.heads * ((p.seq_len + kRows - 1) / kRows);
    forward<<<blocks, dim3(32, kRows), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
