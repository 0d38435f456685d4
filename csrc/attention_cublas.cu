// Attention forward by cuBLAS: Q K^T and P V on tensor cores, and a softmax of our own between them.
//
// IDEA. The unfused way: the scores of some heads are written to global memory in fp32, turned into weights of the
// input's type, in their place, and multiplied with V. What a fused kernel saves is this traffic: for each score four
// bytes written, eight read, two written and two read. It is the step between attention_scalar.cu and attention_mma.cu,
// and shows what the products alone cost.
//   cuBLAS 12 reference, cublasGemmStridedBatchedEx. It counts by columns: a [rows, columns] tensor here is a
//   [columns, rows] matrix there, so that S = Q K^T is computed as S^T = K Q^T, and O = P V as O^T = V^T P^T.
//
// WORKSPACE. Every call allocates its own on the caller's stream and frees it there, cuBLAS's part included: calls on
// several streams share nothing, and a CUDA graph may capture it all. It comes from a pool of this library's own
// (cudaMemPoolCreate), which keeps what was freed for the next call. From the device's pool, which gives it back, a single
// call of the seed problem took 77 us instead of the 13 in a replay.
// Scores take seq_len x seq_len x 4 bytes for each head. At most kScoreBytes are there at a time: heads, and where one
// head has more, rows, are done in chunks, one after the other.
// The pool and the handle of cuBLAS are made in the first call on a device, which no graph may capture, and are kept.
//
// NUMBERS. Products are exact, sums fp32, weights rounded to the input's type after they were divided by their sum.
// cuBLAS may split a long sum, and would add the parts in the type of the result, 16 bits: it is told not to.
// The softmax is a warp a row: one pass for maximum and sum (Milakov and Gimelshein, 2018, arXiv:1805.02867), one for
// the weights. 128 keys at a time; a row's weights fill the first half of its scores, behind what is still to be read.
//
// MEASURED on one H200, B1 H8 S512 D = 64 in fp16, under PyTorch 2.1.0, 2.5.0 and 2.11.0: 15.7, 15.7 and 12.5 us in replays
// of a CUDA graph, 22.2, 22.0 and 19.9 us in single calls; attention_scalar.cu takes 31.5 to 31.9 and 39.9. memcheck,
// initcheck, synccheck and racecheck are silent on 130 rows, of either type and head_dim, causal and not.
#include "attention_family.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

namespace attention_cublas {

using attention_family::divide_up;

constexpr int kWarps = 4, kThreads = 32 * kWarps;
#ifndef SCORE_MIB
#define SCORE_MIB 256
#endif
static_assert(SCORE_MIB >= 1 && SCORE_MIB <= 65536, "SCORE_MIB must be 1 to 65536");
constexpr std::size_t kScoreBytes = std::size_t{SCORE_MIB} << 20;
constexpr std::size_t kLibraryBytes = std::size_t{32} << 20;  // what cuBLAS recommends for sm_90; elsewhere less

template <typename T>
__device__ inline std::uint16_t to_bits(float x);
template <>
__device__ inline std::uint16_t to_bits<__half>(float x) {
    const __half rounded = __float2half_rn(x);
    std::uint16_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}
template <>
__device__ inline std::uint16_t to_bits<__nv_bfloat16>(float x) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(x);
    std::uint16_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}

// What is subtracted before exp2f. A row that has seen -inf only must not compute -inf - -inf.
__device__ inline float base_of(float m) { return m == -INFINITY ? 0.0f : m; }

// Scores key to key + 3 of a row, scaled; those that it must not see are -inf, whatever the product was.
__device__ inline void load(float (&to)[4], const float* row, int key, int seen, float scale_log2) {
    if (key + 4 <= seen) {
        const float4 all = *reinterpret_cast<const float4*>(row + key);
        to[0] = all.x * scale_log2, to[1] = all.y * scale_log2, to[2] = all.z * scale_log2, to[3] = all.w * scale_log2;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = key + i < seen ? row[key + i] * scale_log2 : -INFINITY;
}

// scores: [heads * rows, stride] in fp32, of queries first_row to first_row + rows - 1 of each head; in their place
// weights: [heads * rows, 2 * stride] of T, zero for keys that a row must not see. Grid: kWarps rows a block.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    softmax(float* scores, int all_rows, int rows, int first_row, int seq_len, int stride, bool causal,
            float scale_log2) {
    const int number = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
    if (number >= all_rows) return;
    const int mine = 4 * static_cast<int>(threadIdx.x % 32);
    const int seen = causal ? first_row + number % rows + 1 : seq_len;
    float* row = scores + static_cast<std::size_t>(number) * stride;
    float x[4], m = -INFINITY, l = 0.0f;
    for (int key = mine; key < seen; key += 128) {
        load(x, row, key, seen, scale_log2);
        const float top = fmaxf(m, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]))), base = base_of(top);
        l = l * exp2f(m - base) + ((exp2f(x[0] - base) + exp2f(x[1] - base)) + (exp2f(x[2] - base) + exp2f(x[3] - base)));
        m = top;
    }
    float top = m;
    for (int lanes = 16; lanes > 0; lanes /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lanes));
    const float base = base_of(top);
    l *= exp2f(m - base);
    for (int lanes = 16; lanes > 0; lanes /= 2) l += __shfl_xor_sync(0xffffffffu, l, lanes);
    const float factor = 1.0f / l;

    for (int first = 0; first < seq_len; first += 128) {
        const int key = first + mine;
        load(x, row, key, seen, scale_log2);
        __syncwarp();  // the scores in whose place the weights come were read
        if (key < seq_len) {
            std::uint16_t bits[4];
            for (int i = 0; i < 4; ++i) bits[i] = to_bits<T>(exp2f(x[i] - base) * factor);
            *reinterpret_cast<uint2*>(reinterpret_cast<std::uint16_t*>(row) + key) =
                make_uint2(bits[0] | static_cast<unsigned>(bits[1]) << 16, bits[2] | static_cast<unsigned>(bits[3]) << 16);
        }
    }
}

// What is kept of a device.
struct Kept {
    cublasHandle_t handle = nullptr;
    cudaMemPool_t pool = nullptr;

    int make(int device) {
        if (!pool) {
            cudaMemPoolProps wanted{};
            wanted.allocType = cudaMemAllocationTypePinned;
            wanted.location.type = cudaMemLocationTypeDevice;
            wanted.location.id = device;
            std::uint64_t all = UINT64_MAX;
            if (const int error = cudaMemPoolCreate(&pool, &wanted)) return error;
            if (const int error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all)) return error;
        }
        if (!handle && cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) handle = nullptr;
        return handle && cublasSetMathMode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == CUBLAS_STATUS_SUCCESS
                   ? ATTENTION_OK
                   : static_cast<int>(cudaErrorUnknown);
    }
};

// What is kept of the current device, held by one caller at a time; or why there is none.
class Holder {
public:
    Holder() : lock_(mutex()) {
        static std::map<int, Kept> of_devices;
        int device = 0;
        error_ = cudaGetDevice(&device);
        if (!error_) error_ = of_devices[device].make(device);
        if (!error_) kept_ = of_devices[device];
        cudaGetLastError();
    }
    int error() const { return error_; }
    cublasHandle_t handle() const { return kept_.handle; }
    cudaMemPool_t pool() const { return kept_.pool; }

private:
    static std::mutex& mutex() {
        static std::mutex one;
        return one;
    }
    std::lock_guard<std::mutex> lock_;
    int error_ = 0;
    Kept kept_;
};

// Rows and heads of a chunk, and the distance of rows of scores, a multiple of 16 bytes in both types.
struct Chunk {
    int heads, rows, stride;
    std::size_t bytes() const { return static_cast<std::size_t>(heads) * rows * stride * sizeof(float); }
};

inline Chunk plan(const attention_problem& p) {
    Chunk chunk;
    chunk.stride = static_cast<int>(divide_up(p.seq_len, 4) * 4);
    const std::size_t row_bytes = static_cast<std::size_t>(chunk.stride) * sizeof(float);
    chunk.rows = static_cast<int>(std::max<std::size_t>(1, std::min<std::size_t>(p.seq_len, kScoreBytes / row_bytes)));
    const std::size_t heads = chunk.rows < p.seq_len ? 1 : kScoreBytes / (row_bytes * chunk.rows);
    chunk.heads = static_cast<int>(std::max<std::size_t>(1, std::min<std::size_t>(heads, p.batch * p.heads)));
    return chunk;
}

// One chunk: `heads` heads, queries first_row to first_row + rows - 1; the tensors start at the first of these heads.
template <typename T>
int compute(cublasHandle_t handle, const attention_problem& p, const T* q, const T* k, const T* v, T* o, float* scores,
            int heads, int first_row, int rows, int stride, cudaStream_t stream) {
    const cudaDataType type = p.dtype == ATTENTION_FP16 ? CUDA_R_16F : CUDA_R_16BF;
    const int D = p.head_dim, N = p.seq_len;
    const long long head = static_cast<long long>(N) * D, square = static_cast<long long>(rows) * stride;
    const float one = 1.0f, zero = 0.0f;
    const std::ptrdiff_t offset = static_cast<std::ptrdiff_t>(first_row) * D;
    if (cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, N, rows, D, &one, k, type, D, head, q + offset, type,
                                   D, head, &zero, scores, CUDA_R_32F, stride, square, heads, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
        return cudaErrorUnknown;
    const int all_rows = heads * rows;
    const int error = attention_family::launch(
        &softmax<T>, dim3(static_cast<unsigned>(divide_up(all_rows, kWarps))), kThreads, 0, stream, scores, all_rows, rows,
        first_row, N, stride, p.causal != 0, p.scale * attention_family::kLog2e);
    if (error) return error;
    if (cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, D, rows, N, &one, v, type, D, head, scores, type,
                                   2 * stride, 2 * square, &zero, o + offset, type, D, head, heads, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
        return cudaErrorUnknown;
    return ATTENTION_OK;
}

template <typename T>
int run(const attention_problem& p, const void* q, const void* k, const void* v, void* o, cudaStream_t stream) {
    const Holder device;
    if (device.error()) return device.error();
    const Chunk chunk = plan(p);
    void* workspace = nullptr;
    if (const int error = cudaMallocFromPoolAsync(&workspace, kLibraryBytes + chunk.bytes(), device.pool(), stream)) {
        cudaGetLastError();
        return error;
    }
    // The stream first: setting it takes the library back to a workspace of its own.
    int error = cublasSetStream(device.handle(), stream) == CUBLAS_STATUS_SUCCESS &&
                        cublasSetWorkspace(device.handle(), workspace, kLibraryBytes) == CUBLAS_STATUS_SUCCESS
                    ? ATTENTION_OK
                    : static_cast<int>(cudaErrorUnknown);
    float* scores = reinterpret_cast<float*>(static_cast<char*>(workspace) + kLibraryBytes);
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim;
    for (int first = 0; !error && first < p.batch * p.heads; first += chunk.heads)
        for (int row = 0; !error && row < p.seq_len; row += chunk.rows)
            error = compute(device.handle(), p, static_cast<const T*>(q) + first * head,
                            static_cast<const T*>(k) + first * head, static_cast<const T*>(v) + first * head,
                            static_cast<T*>(o) + first * head, scores,
                            std::min(chunk.heads, p.batch * p.heads - first), row, std::min(chunk.rows, p.seq_len - row),
                            chunk.stride, stream);
    cublasSetStream(device.handle(), nullptr);  // the handle must not keep the workspace, which is gone
    const cudaError_t freed = cudaFreeAsync(workspace, stream);
    if (freed != cudaSuccess) cudaGetLastError();
    return error ? error : static_cast<int>(freed);
}

int forward(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,
            cudaStream_t stream) {
    return problem.dtype == ATTENTION_FP16 ? run<__half>(problem, q, k, v, o, stream)
                                           : run<__nv_bfloat16>(problem, q, k, v, o, stream);
}

const char* choice(const attention_problem&) { return "cublas"; }
const char* tunables() { return "SCORE_MIB=" ATTENTION_TEXT(SCORE_MIB); }

}  // namespace attention_cublas

ATTENTION_ENTRY int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v,
                                      void* o, void* stream) {
    const int refused = attention_family::check_problem(problem, q, k, v, o);
    return refused ? refused : attention_cublas::forward(*problem, q, k, v, o, static_cast<cudaStream_t>(stream));
}
ATTENTION_ENTRY const char* attention_error_string(int code) { return attention_family::error_string(code); }
ATTENTION_ENTRY const char* attention_tunables(void) { return attention_cublas::tunables(); }
ATTENTION_ENTRY const char* attention_choice(const attention_problem* problem) {
    return attention_cublas::choice(*problem);
}
