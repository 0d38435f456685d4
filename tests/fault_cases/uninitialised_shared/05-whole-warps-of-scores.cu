// Scores of one row in shared memory, in whole warps of them: who lies behind the sequence's end weighs nothing, so
// that reductions have no tail.
#include "common.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 128;

__host__ __device__ int whole(int keys) { return (keys + 31) / 32 * 32; }

// A block computes one row. q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* o,
                        int seq_len, int depth, bool causal, float scale) {
    extern __shared__ float scores[];
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    const int row = static_cast<int>(blockIdx.x % seq_len), lane = static_cast<int>(threadIdx.x % 32);
    const int keys = causal ? row + 1 : seq_len;
    q += head + static_cast<size_t>(row) * depth, k += head, v += head;
    o += head + static_cast<size_t>(row) * depth;
    for (int key = threadIdx.x; key < keys; key += kThreads) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d)
            score = fmaf(__bfloat162float(q[d]), __bfloat162float(k[static_cast<size_t>(key) * depth + d]), score);
        scores[key] = score * scale;
    }
    for (int key = seq_len + static_cast<int>(threadIdx.x); key < whole(seq_len); key += kThreads)
        scores[key] = -INFINITY;
    __syncthreads();
    float top = -INFINITY, sum = 0.0f;
    for (int first = 0; first < whole(keys); first += 32) top = fmaxf(top, scores[first + lane]);
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    for (int first = 0; first < whole(keys); first += 32) sum += expf(scores[first + lane] - top);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = 0; key < keys; ++key)
            out = fmaf(expf(scores[key] - top), __bfloat162float(v[static_cast<size_t>(key) * depth + d]), out);
        o[d] = __float2bfloat16_rn(out / sum);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_BF16) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const attention_problem& p = *problem;
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len;
    using Number = __nv_bfloat16;
    forward<<<rows, kThreads, whole(p.seq_len) * sizeof(float), static_cast<cudaStream_t>(stream)>>>(
        static_cast<const Number*>(q), static_cast<const Number*>(k), static_cast<const Number*>(v),
        static_cast<Number*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
