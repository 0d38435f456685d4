// Online softmax, eight rows a block, a warp each. The tile that holds the rows' own keys comes first: the maximum
// settles there. Later tiles rescale only where a vote finds that a row's maximum moved: mostly none does.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kRows = 8, kTile = 32, kMostDepth = 128;

__device__ float largest_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}
__device__ float sum_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// Block: 32 x kRows. A lane owns one key of the tile, then depth / 32 columns of the output.
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, int depth,
                        bool causal, float scale) {
    __shared__ float shrink[kRows], weights[kRows][kTile];
    const int lane = threadIdx.x, warp = threadIdx.y, tiles = (seq_len + kTile - 1) / kTile;
    const int blocks = (seq_len + kRows - 1) / kRows;
    const size_t head = static_cast<size_t>(blockIdx.x / blocks) * seq_len * depth;
    const int row = static_cast<int>(blockIdx.x % blocks) * kRows + warp, own = row - warp;
    const bool exists = row < seq_len;
    q += head + static_cast<size_t>(exists ? row : 0) * depth, k += head, v += head;
    float top = -INFINITY, sum = 0.0f, out[kMostDepth / 32] = {};
    for (int step = 0; step < tiles; ++step) {
        const int key = (own / kTile + step) % tiles * kTile + lane;
        const bool seen = exists && key < seq_len && (!causal || key <= row);
        float score = -INFINITY;
        if (seen) {
            score = 0.0f;
            for (int d = 0; d < depth; ++d)
                score = fmaf(__half2float(q[d]), __half2float(k[static_cast<size_t>(key) * depth + d]), score);
            score *= scale;
        }
        const float largest = fmaxf(top, largest_of(score));
        const bool moved = step > 0 && largest > top;
        if (moved && lane == 0) shrink[warp] = expf(top - largest);
        if (__syncthreads_or(moved)) {
            sum *= shrink[warp];
            for (int i = 0; i < depth / 32; ++i) out[i] *= shrink[warp];
        }
        top = largest;
        weights[warp][lane] = seen ? expf(score - top) : 0.0f;
        sum += sum_of(weights[warp][lane]);
        __syncwarp();
        for (int j = 0; j < kTile; ++j) {
            const int from = min((own / kTile + step) % tiles * kTile + j, seq_len - 1);
            const __half* value = v + static_cast<size_t>(from) * depth + lane;
            for (int i = 0; i < depth / 32; ++i) out[i] = fmaf(weights[warp][j], __half2float(value[i * 32]), out[i]);
        }
        __syncthreads();
    }
    if (!exists) return;
    for (int i = 0; i < depth / 32; ++i)
        o[head + static_cast<size_t>(row) * depth + i * 32 + lane] = __float2half_rn(out[i] / sum);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim % 32 != 0) return ATTENTION_ERROR_HEAD_DIM;
    const unsigned blocks = static_cast<unsigned>(p.batch) * p.heads * ((p.seq_len + kRows - 1) / kRows);
    forward<<<blocks, dim3(32, kRows), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
