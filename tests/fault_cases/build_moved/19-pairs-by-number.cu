// A block computes four rows. Pairs of a row and a key have numbers, row after row, and threads take them by these, so
// that none idles at a row's end. The softmax is a warp's for each row.
#include "common.h"

#include <cuda_runtime.h>

namespace {

constexpr int kRows = 4, kThreads = 32 * kRows;

// The quotient of two whole numbers far below 2^24 is never rounded up to the next whole one, and floats divide faster.
__device__ int quotient(int number, int by) {
    return static_cast<int>(static_cast<float>(number) / static_cast<float>(by));
}

// q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const float* q, const float* k, const float* v, float* o, int seq_len, int depth, bool causal,
                        float scale) {
    extern __shared__ float scores[];
    const int blocks = (seq_len + kRows - 1) / kRows, first = static_cast<int>(blockIdx.x % blocks) * kRows;
    const size_t head = static_cast<size_t>(blockIdx.x / blocks) * seq_len * depth;
    const int rows = min(kRows, seq_len - first), keys = causal ? first + rows : seq_len;
    q += head + static_cast<size_t>(first) * depth, k += head, v += head;
    o += head + static_cast<size_t>(first) * depth;
    for (int pair = threadIdx.x; pair < rows * keys; pair += kThreads) {
        const int row = quotient(pair, keys), key = pair - row * keys;
        float score = -INFINITY;
        if (!causal || key <= first + row) {
            score = 0.0f;
            for (int d = 0; d < depth; ++d)
                score = fmaf(q[row * depth + d], k[static_cast<size_t>(key) * depth + d], score);
            score *= scale;
        }
        scores[pair] = score;
    }
    __syncthreads();
    const int row = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    if (row >= rows) return;
    const float* const mine = scores + row * keys;
    float top = -INFINITY, sum = 0.0f;
    for (int key = lane; key < keys; key += 32) top = fmaxf(top, mine[key]);
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    for (int key = lane; key < keys; key += 32) sum += expf(mine[key] - top);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    for (int d = lane; d < depth; d += 32) {
        float out = 0.0f;
        for (int key = 0; key < keys; ++key)
            out = fmaf(expf(mine[key] - top), v[static_cast<size_t>(key) * depth + d], out);
        o[row * depth + d] = out / sum;
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len > 3072) return ATTENTION_ERROR_TOO_LARGE;
    const attention_problem& p = *problem;
    const unsigned blocks = static_cast<unsigned>(p.batch) * p.heads * ((p.seq_len + kRows - 1) / kRows);
    forward<<<blocks, kThreads, kRows * p.seq_len * sizeof(float), static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v),
        static_cast<float*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("ROWS=4")
