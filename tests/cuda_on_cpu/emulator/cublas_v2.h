// The part of cuBLAS that attention_cublas.cu calls, in plain loops: matrices by columns, as the reference says. Work is
// done in the call, on the host; a workspace that is gone, or none for the stream, is a fault.
#ifndef EMULATOR_CUBLAS_V2_H
#define EMULATOR_CUBLAS_V2_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

#include <vector>

enum cudaDataType { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };

struct cublasContext {
    cudaStream_t stream = nullptr;
    char* workspace = nullptr;
    std::size_t bytes = 0;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
};
using cublasHandle_t = cublasContext*;

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    static cublasContext only;
    *handle = &only;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream, handle->workspace = nullptr, handle->bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
    handle->math = math;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(workspace) % 16) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = static_cast<char*>(workspace), handle->bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

namespace emulator {

inline double element(const void* matrix, cudaDataType type, long long at) {
    if (type == CUDA_R_32F) return static_cast<const float*>(matrix)[at];
    if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(matrix)[at]);
    return __bfloat162float(static_cast<const __nv_bfloat16*>(matrix)[at]);
}
inline void put(void* matrix, cudaDataType type, long long at, float value) {
    if (type == CUDA_R_32F) static_cast<float*>(matrix)[at] = value;
    if (type == CUDA_R_16F) static_cast<__half*>(matrix)[at] = __float2half_rn(value);
    if (type == CUDA_R_16BF) static_cast<__nv_bfloat16*>(matrix)[at] = __float2bfloat16_rn(value);
}

}  // namespace emulator

// C = alpha op(A) op(B) + beta C for each of `count`: op(A) [m, k], op(B) [k, n], C [m, n]; element (row, column) of a
// matrix lies at row + column * leading dimension.
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op,
                                                 int m, int n, int k, const void* alpha, const void* a,
                                                 cudaDataType a_type, int a_leading, long long a_stride, const void* b,
                                                 cudaDataType b_type, int b_leading, long long b_stride, const void* beta,
                                                 void* c, cudaDataType c_type, int c_leading, long long c_stride, int count,
                                                 cublasComputeType_t, cublasGemmAlgo_t) {
    emulator::check_stream(handle->stream, "cuBLAS");
    if (!handle->bytes) emulator::fail("cuBLAS has no workspace for this stream");
    if (handle->math != CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION && c_type != CUDA_R_32F)
        emulator::fail("cuBLAS may add up parts of a sum in 16 bits");
    handle->workspace[0] = handle->workspace[handle->bytes - 1] = 0;
    if (m < 0 || n < 0 || k < 0 || count < 0 || a_leading < std::max(1, a_op == CUBLAS_OP_N ? m : k) ||
        b_leading < std::max(1, b_op == CUBLAS_OP_N ? k : n) || c_leading < std::max(1, m))
        return CUBLAS_STATUS_INVALID_VALUE;
    const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
    for (int i = 0; i < count; ++i) {
        std::vector<double> left(static_cast<std::size_t>(m) * k), right(static_cast<std::size_t>(k) * n);
        for (long long row = 0; row < m; ++row)
            for (long long p = 0; p < k; ++p)
                left[row * k + p] = emulator::element(
                    a, a_type, i * a_stride + (a_op == CUBLAS_OP_N ? row + p * a_leading : p + row * a_leading));
        for (long long column = 0; column < n; ++column)
            for (long long p = 0; p < k; ++p)
                right[column * k + p] = emulator::element(
                    b, b_type, i * b_stride + (b_op == CUBLAS_OP_N ? p + column * b_leading : column + p * b_leading));
        for (long long column = 0; column < n; ++column)
            for (long long row = 0; row < m; ++row) {
                double sum = 0;
                for (long long p = 0; p < k; ++p) sum += left[row * k + p] * right[column * k + p];
                const long long at = i * c_stride + row + column * c_leading;
                const double before = keep == 0 ? 0 : keep * emulator::element(c, c_type, at);
                emulator::put(c, c_type, at, static_cast<float>(scale * sum + before));
            }
    }
    return CUBLAS_STATUS_SUCCESS;
}

#endif
