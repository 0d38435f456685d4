// A block computes one row. Each of its four warps takes a quarter of the keys, by itself, and leaves its maximum, sum
// and outputs in shared memory; warps without a key have nothing to do. Then all are combined.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kWarps = 4, kMostDepth = 128;

__device__ float largest_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}
__device__ float sum_of(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// Block: 32 x kWarps. q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, int depth,
                        bool causal, float scale) {
    __shared__ float tops[kWarps], sums[kWarps], outs[kWarps][kMostDepth];
    const int lane = threadIdx.x, warp = threadIdx.y, row = static_cast<int>(blockIdx.x % seq_len);
    const int share = (seq_len + kWarps - 1) / kWarps, keys = causal ? row + 1 : seq_len;
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    q += head + static_cast<size_t>(row) * depth, o += head + static_cast<size_t>(row) * depth, k += head, v += head;
    if (warp * share < keys) {
        const int last = min((warp + 1) * share, keys);
        float top = -INFINITY, sum = 0.0f, out[kMostDepth / 32] = {};
        for (int first = warp * share; first < last; first += 32) {
            const int key = first + lane;
            float score = -INFINITY;
            if (key < last) {
                score = 0.0f;
                for (int d = 0; d < depth; ++d)
                    score = fmaf(__half2float(q[d]), __half2float(k[static_cast<size_t>(key) * depth + d]), score);
                score *= scale;
            }
            const float largest = fmaxf(top, largest_of(score)), shrink = expf(top - largest);
            const float weight = expf(score - largest);
            top = largest;
            sum = sum * shrink + sum_of(weight);
            for (int i = 0; i < depth / 32; ++i) out[i] *= shrink;
            for (int j = 0; j < min(32, last - first); ++j) {
                const float factor = __shfl_sync(0xffffffffu, weight, j);
                const __half* value = v + static_cast<size_t>(first + j) * depth + lane;
                for (int i = 0; i < depth / 32; ++i) out[i] = fmaf(factor, __half2float(value[i * 32]), out[i]);
            }
        }
        for (int i = 0; i < depth / 32; ++i) outs[warp][i * 32 + lane] = out[i];
        if (lane == 0) tops[warp] = top, sums[warp] = sum;
    }
    __syncthreads();
    float top = -INFINITY;
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, tops[w]);
    for (int d = warp * 32 + lane; d < depth; d += 32 * kWarps) {
        float out = 0.0f, sum = 0.0f;
        for (int w = 0; w < kWarps; ++w) {
            const float shrink = expf(tops[w] - top);
            sum = fmaf(sums[w], shrink, sum);
            out = fmaf(outs[w][d], shrink, out);
        }
        o[d] = __float2half_rn(out / sum);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim % 32 != 0) return ATTENTION_ERROR_HEAD_DIM;
    forward<<<static_cast<unsigned>(p.batch) * p.heads * p.seq_len, dim3(32, kWarps), 0,
              static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
