// What the tensor core families have in common: which problems they take, and how the dispatcher calls them.
//
// A family is a source of its own, and a kernel of its own: its C entry points are weak, so that those of the
// dispatcher (attention.cu) take their place where both are linked into one library.
#ifndef ATTENTION_FAMILY_H
#define ATTENTION_FAMILY_H

#include "attention.h"
#include "tunables.h"

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#define ATTENTION_ENTRY extern "C" ATTENTION_EXPORT __attribute__((weak))

// Each family: `forward` takes a problem that `check_problem` took, and returns ATTENTION_OK or a CUDA error;
// `choice` says in one line, valid for the life of the library, what it runs such a problem with.
#define ATTENTION_DECLARE_FAMILY(family)                                                                          \
    namespace family {                                                                                            \
    int forward(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,           \
                cudaStream_t stream);                                                                             \
    const char* choice(const attention_problem& problem);                                                         \
    const char* tunables();                                                                                       \
    }
ATTENTION_DECLARE_FAMILY(attention_mma)
ATTENTION_DECLARE_FAMILY(attention_wgmma)
ATTENTION_DECLARE_FAMILY(attention_cublas)
#undef ATTENTION_DECLARE_FAMILY

namespace attention_family {

constexpr float kLog2e = 1.44269504088896340736f;

// ATTENTION_OK, or why no family takes the problem. Rows are numbered with an int, and so are blocks, of which a
// head has at most one for 16 rows.
inline int check_problem(const attention_problem* problem, const void* q, const void* k, const void* v, const void* o) {
    if (!problem || !q || !k || !v || !o) return ATTENTION_ERROR_NULL;
    const attention_problem& p = *problem;
    if (p.batch < 1 || p.heads < 1 || p.seq_len < 1) return ATTENTION_ERROR_SHAPE;
    if (p.head_dim != 64 && p.head_dim != 128) return ATTENTION_ERROR_HEAD_DIM;
    if (p.dtype != ATTENTION_FP16 && p.dtype != ATTENTION_BF16) return ATTENTION_ERROR_DTYPE;
    if (p.threads < 0) return ATTENTION_ERROR_THREADS;
    for (const void* pointer : {q, k, v, o})
        if (reinterpret_cast<std::uintptr_t>(pointer) % 16) return ATTENTION_ERROR_ALIGNMENT;
    if (p.seq_len > INT_MAX - 1024) return ATTENTION_ERROR_TOO_LARGE;
    if (p.batch > INT_MAX / ((p.seq_len + 15) / 16) / p.heads) return ATTENTION_ERROR_TOO_LARGE;
    return ATTENTION_OK;
}

inline const char* error_string(int code) {
    switch (code) {
        case ATTENTION_OK: return "ok";
        case ATTENTION_ERROR_NULL: return "the problem or a tensor pointer is NULL";
        case ATTENTION_ERROR_SHAPE: return "batch, heads and seq_len must be at least 1";
        case ATTENTION_ERROR_HEAD_DIM: return "head_dim must be 64 or 128";
        case ATTENTION_ERROR_DTYPE: return "dtype must be fp16 (0) or bf16 (1): tensor cores take no fp32";
        case ATTENTION_ERROR_ALIGNMENT: return "q, k, v and o must be aligned to 16 bytes";
        case ATTENTION_ERROR_TOO_LARGE: return "more query tiles than one launch can number (2^31 - 1)";
        case ATTENTION_ERROR_THREADS: return "threads must not be negative";
        case ATTENTION_ERROR_MEMORY: return "no memory for the workspace";
        default: return code > 0 ? cudaGetErrorString(static_cast<cudaError_t>(code)) : "unknown error code";
    }
}

// An attribute of the current device; 0 where it cannot be had.
inline int device_attribute(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return value;
}

// A divisor above zero that is known before a launch: the quotient of a number from 0 to 2^31 - 1 is then one product,
// where a division takes the device dozens of instructions. Granlund and Montgomery, "Division by Invariant Integers
// using Multiplication", 1994.
class Divisor {
public:
    explicit Divisor(int value) {
        while (std::int64_t{1} << (shift_ - 31) < value) ++shift_;
        factor_ = static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + static_cast<unsigned>(value) - 1) /
                                             static_cast<unsigned>(value));
    }
    __host__ __device__ int quotient(int number) const {
        return static_cast<int>(std::uint64_t{static_cast<unsigned>(number)} * factor_ >> shift_);
    }

private:
    std::uint32_t factor_;
    int shift_ = 31;
};

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Whether there are blocks of `rows` query rows for nearly every multiprocessor: for 7 in 8.
inline bool fills_the_device(const attention_problem& problem, int rows) {
    const std::int64_t blocks = divide_up(problem.seq_len, rows) * problem.batch * problem.heads;
    return blocks * 8 >= std::int64_t{7} * device_attribute(cudaDevAttrMultiProcessorCount);
}

// Whether a kernel that calls ptx::wait_for_stream waits there: code for an older architecture, as it is or compiled
// anew by the driver, does not.
template <typename... P>
bool waits_for_stream(void (*kernel)(P...)) {
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) return attributes.ptxVersion >= 90;
    cudaGetLastError();
    return false;
}

// Launches `kernel`, with the permission that more than 48 KiB of shared memory need: it is asked for on every call,
// since it belongs to the current device, and callers change that. Returns a CUDA error, and leaves none behind.
// EARLY, for kernels that call ptx::wait_for_stream first: before the work in front of it ends (early_launch.h).
template <bool EARLY = false, typename... P, typename... A>
int launch(void (*kernel)(P...), dim3 grid, int threads, std::size_t shared_bytes, cudaStream_t stream, A... values) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid, config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes, config.stream = stream;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early, config.numAttrs = EARLY && waits_for_stream(kernel) ? 1 : 0;
    cudaError_t error = cudaSuccess;
    if (shared_bytes > 48 * 1024)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, static_cast<P>(values)...);
    if (error != cudaSuccess) cudaGetLastError();
    return static_cast<int>(error);
}

}  // namespace attention_family

#endif
