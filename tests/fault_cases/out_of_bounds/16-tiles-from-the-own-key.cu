// A warp for each row. Keys are taken in tiles of 32 from the last one that the row sees down to the first, so that the
// mask falls on no tile: the first tile ends with the row's own key.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kRows = 4, kTile = 32, kMostDepth = 128;

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
    const int lane = threadIdx.x, blocks = (seq_len + kRows - 1) / kRows;
    const int row = static_cast<int>(blockIdx.x % blocks) * kRows + threadIdx.y;
    if (row >= seq_len) return;
    const size_t head = static_cast<size_t>(blockIdx.x / blocks) * seq_len * depth;
    q += head + static_cast<size_t>(row) * depth, k += head, v += head;
    float top = -INFINITY, sum = 0.0f, out[kMostDepth / 32] = {};
    for (int end = causal ? row + 1 : seq_len; end > 0; end -= kTile) {
        const int begin = end - kTile;
        const __half* key = k + (begin + lane) * depth;
        float score = 0.0f;
        for (int d = 0; d < depth; ++d) score = fmaf(__half2float(q[d]), __half2float(key[d]), score);
        score *= scale;
        const float largest = fmaxf(top, largest_of(score));
        const float weight = expf(score - largest), shrink = expf(top - largest);
        top = largest;
        sum = fmaf(sum, shrink, sum_of(weight));
        for (int i = 0; i < depth / 32; ++i) out[i] *= shrink;
        for (int j = 0; j < kTile; ++j) {
            const __half* value = v + (begin + j) * depth + lane;
            const float share = __shfl_sync(0xffffffffu, weight, j);
            for (int i = 0; i < depth / 32; ++i) out[i] = fmaf(share, __half2float(value[i * 32]), out[i]);
        }
    }
    for (int i = 0; i < depth / 32; ++i)
        o[head + static_cast<size_t>(row) * depth + i * 32 + lane] = __float2half_rn(out[i] / sum);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    if (p.head_dim % 32 != 0) return ATTENTION_ERROR_HEAD_DIM;
    const unsigned blocks = static_cast<unsigned>(p.batch) * p.heads * ((p.seq_len + kRows - 1) / kRows);
    forward<<<blocks, dim3(32, kRows), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
