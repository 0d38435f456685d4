// Instructions that CUDA C++ has no name for, each wrapped once. Numbers of sections are those of the PTX ISA 8.4.
// An address is a 32-bit one of shared memory, so that swizzles are arithmetic on it.
//
// Under the emulator (tests/cuda_on_cpu) the same interface comes from there.
#ifndef PTX_CUH
#define PTX_CUH

#include "early_launch.h"

#include <cuda_runtime.h>

#ifdef CUDA_EMULATOR
#include "emulator/ptx.cuh"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ptx {

using Address = std::uint32_t;

// The block's dynamic shared memory; its first byte is aligned to 1024.
__device__ inline unsigned char* dynamic_shared() {
    extern __shared__ __align__(1024) unsigned char ptx_dynamic_shared[];
    return ptx_dynamic_shared;
}

__device__ inline Address shared_address(const void* pointer) {
    return static_cast<Address>(__cvta_generic_to_shared(pointer));
}

// 9.7.8.22.3, cp.async: 16 bytes from global to shared memory, around registers and L1. With `present` false the
// bytes become zeros and nothing is read, wherever `from` points.
__device__ inline void copy_async_16(Address to, const void* from, bool present = true) {
    const int bytes = present ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// 9.7.8.22.3.2, cp.async.commit_group: what this thread has issued since the last call becomes a group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// 9.7.8.22.3.3, cp.async.wait_group: all but this thread's latest `pending` groups are complete, for this thread;
// others see them behind a barrier.
template <int PENDING>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// 9.7.14.5.15, ldmatrix: four 8 x 8 matrices of 16-bit elements; lanes 8 i to 8 i + 7 give the addresses of the rows
// of matrix i, 16 bytes each. A lane gets of each matrix elements 2 (lane % 4) and the next of row lane / 4.
__device__ inline void load_matrices(std::uint32_t (&to)[4], Address row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// The same, transposed: a lane gets elements lane / 4 of rows 2 (lane % 4) and the next.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], Address row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// 9.7.14.5.14, mma.m16n8k16: c += a b, with a [16, 16] by rows, b [16, 8] by columns, c [16, 8] in fp32. With
// g = lane / 4 and t = lane % 4 a lane holds
//   a: (g, 2t..) (g + 8, 2t..) (g, 2t + 8..) (g + 8, 2t + 8..), pairs along a row
//   b: (2t.., g) (2t + 8.., g), pairs along a column
//   c: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
template <typename T>
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

template <>
__device__ inline void multiply_add<__half>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                            std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                   std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 9.7.3.20, ex2.approx: 2 to the power x, within 2 ulp; -inf gives 0. Small results become 0.
__device__ inline float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 9.7.13.1, barrier: `threads` threads of the block, whole warps, meet at barrier `id` (0 is that of __syncthreads).
__device__ inline void barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// griddepcontrol: until all work before this kernel in the stream is complete, and seen by this thread; then
// the kernel behind it may start, as far as there is room. Nothing where EARLY_LAUNCH is 0, and before sm_90.
__device__ inline void wait_for_stream() {
#if EARLY_LAUNCH && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ptx

#endif
#endif
