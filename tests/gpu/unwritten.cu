// A plain fp16 attention, one block a row, with one fault, chosen at compile time: what it reads without having
// written it, or where it runs, gets into its output.
//
// FAULT_SHARED      adds what stands in shared memory that it never wrote to its sum of weights
// FAULT_WORKSPACE   does so with memory from PyTorch's allocator
// FAULT_TAIL        reads a key and a value beyond the last: the next head's, and behind the last head nobody's
// FAULT_STREAM      launches on the legacy default stream, not on the caller's
// FAULT_NONE        is right
#include "attention.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>

#ifdef FAULT_WORKSPACE
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace {

__global__ void attend(const __half* q, const __half* k, const __half* v, __half* o, const float* start, int rows,
                       int depth, bool causal, float scale) {
    extern __shared__ float scores[];  // one for each key, and then one that nobody writes
    const long head = static_cast<long>(blockIdx.x / rows) * rows * depth;
#ifdef FAULT_TAIL
    const int beyond = 1;
#else
    const int beyond = 0;
#endif
    const int row = static_cast<int>(blockIdx.x) % rows, keys = (causal ? row + 1 : rows) + beyond;
    for (int j = static_cast<int>(threadIdx.x); j < keys; j += static_cast<int>(blockDim.x)) {
        float score = 0;
        for (int c = 0; c < depth; ++c)
            score += __half2float(q[head + static_cast<long>(row) * depth + c]) *
                     __half2float(k[head + static_cast<long>(j) * depth + c]);
        scores[j] = score * scale;
    }
    __syncthreads();
    float top = -INFINITY, sum = start ? *start : 0;
#ifdef FAULT_SHARED
    sum += scores[rows];
#endif
    for (int j = 0; j < keys; ++j) top = fmaxf(top, scores[j]);
    for (int j = 0; j < keys; ++j) sum += expf(scores[j] - top);
    for (int c = static_cast<int>(threadIdx.x); c < depth; c += static_cast<int>(blockDim.x)) {
        float value = 0;
        for (int j = 0; j < keys; ++j)
            value += expf(scores[j] - top) * __half2float(v[head + static_cast<long>(j) * depth + c]);
        o[head + static_cast<long>(row) * depth + c] = __float2half(value / sum);
    }
}

}  // namespace

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q, const void* k,
                                                  const void* v, void* o, void* stream) {
    const attention_problem& p = *problem;
    if (p.dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    const float* start = nullptr;
#ifdef FAULT_WORKSPACE
    auto* work = static_cast<float*>(c10::cuda::CUDACachingAllocator::raw_alloc(1 << 18));
    start = work + 1234;
#endif
#ifdef FAULT_STREAM
    stream = nullptr;
#endif
    attend<<<static_cast<unsigned>(p.batch * p.heads * p.seq_len), 128, (p.seq_len + 1) * sizeof(float),
             static_cast<cudaStream_t>(stream)>>>(static_cast<const __half*>(q), static_cast<const __half*>(k),
                                                  static_cast<const __half*>(v), static_cast<__half*>(o), start,
                                                  p.seq_len, p.head_dim, p.causal != 0, p.scale);
    const cudaError_t error = cudaGetLastError();
#ifdef FAULT_WORKSPACE
    c10::cuda::CUDACachingAllocator::raw_delete(work);
#endif
    return static_cast<int>(error);
}

extern "C" ATTENTION_EXPORT const char* attention_error_string(int code) {
    return code > 0 ? cudaGetErrorString(static_cast<cudaError_t>(code)) : "it takes fp16 alone";
}

extern "C" ATTENTION_EXPORT const char* attention_tunables(void) { return ""; }
