// Keys are split over two blocks a row. Each leaves its maximum, sum and outputs in a workspace and takes a ticket of
// its row; who takes the last one combines. The workspace is kept from call to call, and cleared when it is made.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <mutex>

namespace {

constexpr int kThreads = 64, kSplits = 2;

// Grid: rows, kSplits; a thread owns a column. partials: [rows, kSplits, 2 + depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, float* partials, int* tickets,
                        int seq_len, int depth, bool causal, float scale) {
    extern __shared__ float scores[];
    __shared__ bool last_one;
    const int row = static_cast<int>(blockIdx.x % seq_len), keys = causal ? row + 1 : seq_len;
    const int share = (keys + kSplits - 1) / kSplits, first = blockIdx.y * share, last = min(first + share, keys);
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    q += static_cast<size_t>(blockIdx.x) * depth, k += head, v += head;
    float* const rows = partials + static_cast<size_t>(blockIdx.x) * kSplits * (2 + depth);
    float* const mine = rows + blockIdx.y * (2 + depth);
    for (int key = first + threadIdx.x; key < last; key += kThreads) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d)
            score = fmaf(__half2float(q[d]), __half2float(k[static_cast<size_t>(key) * depth + d]), score);
        scores[key - first] = score * scale;
    }
    __syncthreads();
    float top = -1e30f, sum = 0.0f;
    for (int i = 0; i < last - first; ++i) top = fmaxf(top, scores[i]);
    for (int i = 0; i < last - first; ++i) sum += expf(scores[i] - top);
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int i = 0; i < last - first; ++i)
            out = fmaf(expf(scores[i] - top), __half2float(v[static_cast<size_t>(first + i) * depth + d]), out);
        mine[2 + d] = out;
    }
    if (threadIdx.x == 0) mine[0] = top, mine[1] = sum;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last_one = atomicAdd(tickets + blockIdx.x, 1) == kSplits - 1;
    __syncthreads();
    if (!last_one) return;
    __threadfence();
    const volatile float *a = rows, *b = rows + 2 + depth;
    const float both = fmaxf(a[0], b[0]), left = expf(a[0] - both), right = expf(b[0] - both);
    for (int d = threadIdx.x; d < depth; d += kThreads)
        o[static_cast<size_t>(blockIdx.x) * depth + d] =
            __float2half_rn((a[2 + d] * left + b[2 + d] * right) / (a[1] * left + b[1] * right));
}

struct Workspace {
    std::mutex mutex;
    float* memory = nullptr;
    size_t bytes = 0;

    cudaError_t reserve(size_t wanted) {
        if (wanted <= bytes) return cudaSuccess;
        cudaFree(memory);  // waits for the device
        bytes = 0;
        if (const cudaError_t error = cudaMalloc(&memory, wanted)) return error;
        if (const cudaError_t error = cudaMemset(memory, 0, wanted)) return error;
        bytes = wanted;
        return cudaDeviceSynchronize();
    }
};
Workspace workspace;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (p.seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const size_t rows = static_cast<size_t>(p.batch) * p.heads * p.seq_len, floats = rows * kSplits * (2 + p.head_dim);
    const std::lock_guard<std::mutex> guard(workspace.mutex);
    if (const cudaError_t error = workspace.reserve(floats * sizeof(float) + rows * sizeof(int))) return error;
    forward<<<dim3(static_cast<unsigned>(rows), kSplits), kThreads, p.seq_len * sizeof(float),
              static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), workspace.memory, reinterpret_cast<int*>(workspace.memory + floats), p.seq_len,
        p.head_dim, p.causal != 0, p.scale);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
