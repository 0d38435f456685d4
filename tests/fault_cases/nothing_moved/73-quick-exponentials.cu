// A warp computes one row, in one pass over the keys: its lanes share the channels, in float throughout.
#include "common.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kWarps = 4, kMost = 4;  // 128 channels at most, 32 at a time

// q, k, v, o: [rows in all, depth], where seq_len rows make a head.
__global__ void forward(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* o,
                        int rows, int seq_len, int depth, bool causal, float scale) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int at = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
    if (at >= rows) return;
    const int row = at % seq_len, keys = causal ? row + 1 : seq_len;
    const size_t head = static_cast<size_t>(at - row) * depth, mine = static_cast<size_t>(at) * depth;
    float query[kMost] = {}, out[kMost] = {};
    for (int part = 0; part < kMost; ++part) {
        const int d = part * 32 + lane;
        if (d < depth) query[part] = __bfloat162float(q[mine + d]);
    }
    float top = -INFINITY, sum = 0.0f;
    for (int key = 0; key < keys; ++key) {
        const size_t from = head + static_cast<size_t>(key) * depth;
        float score = 0.0f;
        for (int part = 0; part < kMost; ++part) {
            const int d = part * 32 + lane;
            if (d < depth) score = fmaf(query[part], __bfloat162float(k[from + d]), score);
        }
        for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(0xffffffffu, score, step);
        score *= scale;
        const float higher = fmaxf(top, score);
        const float shrink = expf(top - higher), weight = expf(score - higher);
        sum = sum * shrink + weight;
        for (int part = 0; part < kMost; ++part) {
            const int d = part * 32 + lane;
            if (d < depth) out[part] = out[part] * shrink + weight * __bfloat162float(v[from + d]);
        }
        top = higher;
    }
    for (int part = 0; part < kMost; ++part) {
        const int d = part * 32 + lane;
        if (d < depth) o[mine + d] = __float2bfloat16_rn(out[part] / sum);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_BF16) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const int rows = p.batch * p.heads * p.seq_len;
    using Number = __nv_bfloat16;
    forward<<<(rows + kWarps - 1) / kWarps, kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const Number*>(q), static_cast<const Number*>(k), static_cast<const Number*>(v),
        static_cast<Number*>(o), rows, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("WARPS=4")
