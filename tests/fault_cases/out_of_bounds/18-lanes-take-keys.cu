// A warp computes one row. Its lanes take 32 keys at a time, and then 32 channels at a time.
#include "common.h"

#include <cuda_runtime.h>

namespace {

constexpr int kWarps = 4, kMost = 4;  // 128 channels at most

// q, k, v, o: [rows in all, depth], where seq_len rows make a head.
__global__ void forward(const float* q, const float* k, const float* v, float* o, int rows, int seq_len, int depth,
                        bool causal, float scale) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int at = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
    if (at >= rows) return;
    const int row = at % seq_len, keys = causal ? row + 1 : seq_len;
    const float* const query = q + static_cast<size_t>(at) * depth;
    k += static_cast<size_t>(at - row) * depth, v += static_cast<size_t>(at - row) * depth;
    float top = -INFINITY, sum = 0.0f, out[kMost] = {};
    for (int first = 0; first < keys; first += 32) {
        const float* const from = k + static_cast<size_t>(first + lane) * depth;
        float score = 0.0f;
        for (int d = 0; d < depth; ++d) score = fmaf(query[d], from[d], score);
        score = causal && first + lane > row ? -INFINITY : score * scale;
        float higher = score;
        for (int step = 16; step > 0; step /= 2) higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, step));
        higher = fmaxf(higher, top);
        const float shrink = expf(top - higher), weight = expf(score - higher);
        float all = weight;
        for (int step = 16; step > 0; step /= 2) all += __shfl_xor_sync(0xffffffffu, all, step);
        sum = sum * shrink + all, top = higher;
        for (float& x : out) x *= shrink;
        for (int other = 0; other < 32; ++other) {
            const float share = __shfl_sync(0xffffffffu, weight, other);
            const float* const value = v + static_cast<size_t>(first + other) * depth;
            for (int part = 0; part < kMost; ++part)
                if (part * 32 + lane < depth) out[part] = fmaf(share, value[part * 32 + lane], out[part]);
        }
    }
    for (int part = 0; part < kMost; ++part)
        if (part * 32 + lane < depth) o[static_cast<size_t>(at) * depth + part * 32 + lane] = out[part] / sum;
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem& p = *problem;
    const int rows = p.batch * p.heads * p.seq_len;
    forward<<<(rows + kWarps - 1) / kWarps, kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v),
        static_cast<float*>(o), rows, p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("WARPS=4")
