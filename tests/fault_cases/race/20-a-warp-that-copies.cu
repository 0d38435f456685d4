// Warp 0 copies tiles of keys and values into shared memory, and the other warps compute four rows each: while they
// work on one tile, the next one comes.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kTile = 32, kDepth = 64, kPitch = kDepth + 1, kWorkers = 4, kRows = 4;  // kRows: a worker's

__device__ void copy(const __half* from, float* to, int first, int seq_len, int lane) {
    for (int i = lane; i < kTile * kDepth; i += 32) {
        const int key = i / kDepth, d = i % kDepth;
        to[key * kPitch + d] =
            first + key < seq_len ? __half2float(from[static_cast<size_t>(first + key) * kDepth + d]) : 0.0f;
    }
}

// A block computes kWorkers * kRows rows of one head. q, k, v, o: [heads in all, seq_len, kDepth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, bool causal,
                        float scale) {
    __shared__ float keys[2][kTile * kPitch], values[kTile * kPitch];
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const size_t head = static_cast<size_t>(blockIdx.y) * seq_len * kDepth;
    const int rows = static_cast<int>(blockIdx.x) * kWorkers * kRows, mine = rows + (warp - 1) * kRows;
    const int seen = causal ? min(seq_len, rows + kWorkers * kRows) : seq_len, tiles = (seen + kTile - 1) / kTile;
    q += head, k += head, v += head, o += head;
    float top[kRows], sum[kRows] = {}, low[kRows] = {}, high[kRows] = {};
    for (float& x : top) x = -INFINITY;
    if (warp == 0) copy(v, values, 0, seq_len, lane), copy(k, keys[0], 0, seq_len, lane);
    __syncthreads();
    for (int tile = 0; tile < tiles; ++tile) {
        if (warp == 0 && tile + 1 < tiles) {
            copy(v, values, (tile + 1) * kTile, seq_len, lane);
            copy(k, keys[(tile + 1) % 2], (tile + 1) * kTile, seq_len, lane);
        }
        for (int r = 0; warp > 0 && r < kRows && mine + r < seq_len; ++r) {
            const __half* const query = q + static_cast<size_t>(mine + r) * kDepth;
            const int key = tile * kTile + lane;
            float score = 0.0f;
            for (int d = 0; d < kDepth; ++d)
                score = fmaf(__half2float(query[d]), keys[tile % 2][lane * kPitch + d], score);
            score = key < seq_len && (!causal || key <= mine + r) ? score * scale : -INFINITY;
            float higher = score;
            for (int step = 16; step > 0; step /= 2)
                higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, step));
            higher = fmaxf(higher, top[r]);
            const float shrink = expf(top[r] - higher), weight = expf(score - higher);
            float all = weight;
            for (int step = 16; step > 0; step /= 2) all += __shfl_xor_sync(0xffffffffu, all, step);
            sum[r] = sum[r] * shrink + all, low[r] *= shrink, high[r] *= shrink, top[r] = higher;
            for (int other = 0; other < kTile; ++other) {
                const float share = __shfl_sync(0xffffffffu, weight, other);
                low[r] = fmaf(share, values[other * kPitch + lane], low[r]);
                high[r] = fmaf(share, values[other * kPitch + lane + 32], high[r]);
            }
        }
        __syncthreads();
    }
    for (int r = 0; warp > 0 && r < kRows && mine + r < seq_len; ++r) {
        o[static_cast<size_t>(mine + r) * kDepth + lane] = __float2half_rn(low[r] / sum[r]);
        o[static_cast<size_t>(mine + r) * kDepth + lane + 32] = __float2half_rn(high[r] / sum[r]);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim != kDepth) return ATTENTION_ERROR_HEAD_DIM;
    if (p.batch * p.heads > 65535) return ATTENTION_ERROR_TOO_LARGE;
    const dim3 grid((p.seq_len + kWorkers * kRows - 1) / (kWorkers * kRows), p.batch * p.heads);
    forward<<<grid, 32 * (1 + kWorkers), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("TILE=32 WORKERS=4 ROWS=4")
