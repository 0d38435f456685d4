// Tiles of K and V in shared memory, 32 rows of queries a block, four a warp. Walks from the newest key to the oldest:
// the tile of a row's own key, which mostly has its maximum, comes first.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kWarps = 8, kEach = 4, kRows = kWarps * kEach, kTile = 32, kDepth = 64;

// Block: 32 x kWarps. A lane owns two columns of the output.
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, bool causal,
                        float scale) {
    __shared__ __half keys[kTile][kDepth], values[kTile][kDepth];
    const int lane = threadIdx.x, warp = threadIdx.y, blocks = (seq_len + kRows - 1) / kRows;
    const size_t head = static_cast<size_t>(blockIdx.x / blocks) * seq_len * kDepth;
    const int first_row = static_cast<int>(blockIdx.x % blocks) * kRows + warp * kEach;
    q += head, k += head, v += head, o += head;
    const int end = causal ? min(seq_len, first_row - warp * kEach + kRows) : seq_len;
    float top[kEach], sum[kEach] = {}, left[kEach] = {}, right[kEach] = {};
    for (int r = 0; r < kEach; ++r) top[r] = -INFINITY;
    for (int first = (end - 1) / kTile * kTile; first >= 0; first -= kTile) {
        for (int i = warp * 32 + lane; i < kTile * kDepth; i += 32 * kWarps) {
            const int key = min(first + i / kDepth, seq_len - 1);
            keys[i / kDepth][i % kDepth] = k[static_cast<size_t>(key) * kDepth + i % kDepth];
            values[i / kDepth][i % kDepth] = v[static_cast<size_t>(key) * kDepth + i % kDepth];
        }
        __syncthreads();
        for (int r = 0; r < kEach && first_row + r < seq_len; ++r) {
            const int seen = causal ? min(first_row + r + 1, seq_len) : seq_len;
            const __half* query = q + static_cast<size_t>(first_row + r) * kDepth;
            for (int j = 0; j < kTile && first + j < seen; ++j) {
                float score = __half2float(query[lane]) * __half2float(keys[j][lane]);
                score = fmaf(__half2float(query[lane + 32]), __half2float(keys[j][lane + 32]), score);
                for (int distance = 16; distance > 0; distance /= 2)
                    score += __shfl_xor_sync(0xffffffffu, score, distance);
                score *= scale;
                const float largest = fmaxf(top[r], score), shrink = expf(top[r] - largest);
                const float weight = expf(score - largest);
                top[r] = largest;
                sum[r] = fmaf(sum[r], shrink, weight);
                left[r] = fmaf(left[r], shrink, weight * __half2float(values[j][lane]));
                right[r] = fmaf(right[r], shrink, weight * __half2float(values[j][lane + 32]));
            }
        }
    }
    for (int r = 0; r < kEach && first_row + r < seq_len; ++r) {
        __half* to = o + static_cast<size_t>(first_row + r) * kDepth;
        to[lane] = __float2half_rn(left[r] / sum[r]);
        to[lane + 32] = __float2half_rn(right[r] / sum[r]);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim != kDepth) return ATTENTION_ERROR_HEAD_DIM;
    const unsigned blocks = static_cast<unsigned>(p.batch) * p.heads * ((p.seq_len + kRows - 1) / kRows);
    forward<<<blocks, dim3(32, kWarps), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
