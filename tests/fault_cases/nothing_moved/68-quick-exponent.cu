// Online softmax in registers: a warp computes one row, a lane owns two columns of it. Scores are summed over the warp.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kRows = 4, kDepth = 64;

// Block: 32 x kRows. q, k, v, o: [heads in all, seq_len, kDepth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int rows, int seq_len,
                        bool causal, float scale) {
    const int lane = threadIdx.x, at = blockIdx.x * kRows + threadIdx.y;
    if (at >= rows) return;
    const size_t head = static_cast<size_t>(at / seq_len) * seq_len * kDepth;
    const int keys = causal ? at % seq_len + 1 : seq_len;
    q += static_cast<size_t>(at) * kDepth + lane, o += static_cast<size_t>(at) * kDepth + lane;
    k += head + lane, v += head + lane;
    const float query = __half2float(q[0]) * scale, other = __half2float(q[32]) * scale;
    float top = -1e30f, sum = 0.0f, left = 0.0f, right = 0.0f;
    for (int key = 0; key < keys; ++key, k += kDepth, v += kDepth) {
        float score = fmaf(other, __half2float(k[32]), query * __half2float(k[0]));
        for (int distance = 16; distance > 0; distance /= 2) score += __shfl_xor_sync(0xffffffffu, score, distance);
        const float largest = fmaxf(top, score), shrink = expf(top - largest), weight = expf(score - largest);
        top = largest;
        sum = fmaf(sum, shrink, weight);
        left = fmaf(left, shrink, weight * __half2float(v[0]));
        right = fmaf(right, shrink, weight * __half2float(v[32]));
    }
    o[0] = __float2half_rn(left / sum);
    o[32] = __float2half_rn(right / sum);
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.head_dim != kDepth) return ATTENTION_ERROR_HEAD_DIM;
    const int rows = p.batch * p.heads * p.seq_len;
    forward<<<(rows + kRows - 1) / kRows, dim3(32, kRows), 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), rows, p.seq_len, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
