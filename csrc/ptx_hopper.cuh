// Hopper's instructions (sm_90a), one function each, named after the PTX instruction. What is quoted are sections of
// "Parallel Thread Execution ISA" by name, since their numbers change from version to version; an instruction's own is
// named after it.
//
// Under the emulator each has a twin of the same name and signature in emulator/hopper.h.
#ifndef ATTENTION_PTX_HOPPER_CUH
#define ATTENTION_PTX_HOPPER_CUH

#include "ptx.cuh"

#include <cstdint>

namespace ptx {

// A matrix in shared memory as wgmma takes it, in panels of 64 columns of 16 bits, 128 bytes a row, whose 16-byte
// pieces the 128-byte swizzle permutes within 8 rows. "Matrix descriptor format" and "Strides":
//   bits  0-13  start address / 16           bits 49-51  base offset: 0, since panels start at multiples of 1024 bytes
//   bits 16-29  leading byte offset / 16     bits 62-63  1: 128-byte swizzle
//   bits 32-45  stride byte offset / 16
// K-major (columns are what is summed over): the leading offset is not used, the stride one leads to the next 8 rows.
// MN-major (rows are what is summed over): the leading offset leads to the next 64 columns, that is, to the next
// panel, the stride one to the next 8 rows.
constexpr int kPanelColumns = 64, kRowBytes = 128, kAtomBytes = 8 * kRowBytes;

__device__ constexpr std::uint64_t descriptor(std::uint32_t address, std::uint32_t leading_bytes) {
    return std::uint64_t(address >> 4 & 0x3fff) | std::uint64_t(leading_bytes >> 4 & 0x3fff) << 16 |
           std::uint64_t(kAtomBytes >> 4) << 32 | std::uint64_t(1) << 62;
}

// The same matrix, `bytes` further on: shared memory ends before the address could carry into the next field.
__device__ constexpr std::uint64_t advanced(std::uint64_t matrix, int bytes) { return matrix + (bytes >> 4); }

}  // namespace ptx

#ifdef CUDA_EMULATOR
#include "emulator/hopper.h"
#else

#include <cuda.h>

#include <type_traits>

namespace ptx {

using Barrier = std::uint64_t;  // an mbarrier object, in shared memory
using TensorMap = CUtensorMap;

// mbarrier.init: a phase ends when `arrivals` came, and all bytes that they announced.
__device__ inline void mbarrier_init(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// membar/fence: what was initialised is seen by the copy engine.
__device__ inline void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// mbarrier.arrive
__device__ inline void mbarrier_arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// mbarrier.arrive.expect_tx: arrives, and announces bytes.
__device__ inline void mbarrier_arrive_expect_tx(Barrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// mbarrier.try_wait: whether the phase of this parity has ended; sleeps for a while where it has not.
__device__ inline bool mbarrier_try_wait_parity(Barrier* barrier, int parity) {
    std::uint32_t ended;
    asm volatile(
        "{.reg .pred ended;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return ended != 0;
}

// prefetch.tensormap
__device__ inline void prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// cp.async.bulk.tensor: one box of a tensor, its corner at (x, y, z), to shared memory; zeros where the
// box leaves the tensor. The barrier is told the bytes of a whole box.
__device__ inline void load_box(void* to, const TensorMap* map, Barrier* barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// setmaxnreg: registers of each thread of this warpgroup from now on.
template <int REGISTERS>
__device__ inline void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ inline void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// rcp, subnormal numbers 0.
__device__ inline float reciprocal_approximate(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// cvt: two numbers rounded to T, the first one in the lower half.
template <typename T>
__device__ inline std::uint32_t cvt_pair(float low, float high) {
    std::uint32_t pair;
    if constexpr (std::is_same<T, __half>::value)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Holds the compiler to the order of instructions around it: what is read from `registers` later is read later.
template <int COUNT>
__device__ inline void pin(float (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

// wgmma.fence: registers written so far are seen by the wgmma that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group
__device__ inline void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group: all but the newest PENDING groups are done, and with them `results`.
template <int PENDING, int COUNT>
__device__ inline void wgmma_wait_group(float (&results)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    pin(results);
}

// Operands of wgmma: names of registers, and the registers.
#define PTX_N32                                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_N40 PTX_N32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PTX_N48 PTX_N40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PTX_N56 PTX_N48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PTX_N64 PTX_N56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_N72 PTX_N64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define PTX_N80 PTX_N72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define PTX_N88 PTX_N80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define PTX_N96 PTX_N88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_D8(i)                                                                                            \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define PTX_D32 PTX_D8(0), PTX_D8(8), PTX_D8(16), PTX_D8(24)
#define PTX_D40 PTX_D32, PTX_D8(32)
#define PTX_D48 PTX_D40, PTX_D8(40)
#define PTX_D56 PTX_D48, PTX_D8(48)
#define PTX_D64 PTX_D56, PTX_D8(56)
#define PTX_D72 PTX_D64, PTX_D8(64)
#define PTX_D80 PTX_D72, PTX_D8(72)
#define PTX_D88 PTX_D80, PTX_D8(80)
#define PTX_D96 PTX_D88, PTX_D8(88)

// wgmma.mma_async, both matrices in shared memory and K-major: d = a b^T, plus d where `add`. COUNT = N / 2
// registers; the three operands after them are numbered A, B and P.
#define PTX_WGMMA_SS(N, COUNT, TYPE, A, B, P)                                                               \
    asm volatile("{.reg .pred add;\nsetp.ne.b32 add, %" #P                                                  \
                 ", 0;\n"                                                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" PTX_N##COUNT "}, %" #A \
                 ", %" #B ", add, 1, 1, 0, 0;}"                                                             \
                 : PTX_D##COUNT                                                                             \
                 : "l"(a), "l"(b), "r"(int(add)))
#define PTX_WGMMA_SS_OF(N, COUNT, A, B, P)                   \
    if constexpr (COUNT == WIDTH) {                          \
        if constexpr (std::is_same<T, __half>::value)        \
            PTX_WGMMA_SS(N, COUNT, "f16", A, B, P);          \
        else                                                 \
            PTX_WGMMA_SS(N, COUNT, "bf16", A, B, P);         \
    }
template <typename T, int WIDTH>
__device__ inline void wgmma(float (&d)[WIDTH], std::uint64_t a, std::uint64_t b, bool add) {
    static_assert(WIDTH % 8 == 0 && WIDTH >= 32 && WIDTH <= 96, "this many columns have no instruction here");
    PTX_WGMMA_SS_OF(64, 32, 32, 33, 34)
    PTX_WGMMA_SS_OF(80, 40, 40, 41, 42)
    PTX_WGMMA_SS_OF(96, 48, 48, 49, 50)
    PTX_WGMMA_SS_OF(112, 56, 56, 57, 58)
    PTX_WGMMA_SS_OF(128, 64, 64, 65, 66)
    PTX_WGMMA_SS_OF(144, 72, 72, 73, 74)
    PTX_WGMMA_SS_OF(160, 80, 80, 81, 82)
    PTX_WGMMA_SS_OF(176, 88, 88, 89, 90)
    PTX_WGMMA_SS_OF(192, 96, 96, 97, 98)
}

// The same with `a` in registers and b MN-major: d = a b, plus d where `add`.
#define PTX_WGMMA_RS(N, COUNT, TYPE, A0, A1, A2, A3, B, P)                                                          \
    asm volatile("{.reg .pred add;\nsetp.ne.b32 add, %" #P                                                          \
                 ", 0;\n"                                                                                           \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" PTX_N##COUNT "}, {%" #A0 ", %" \
                 #A1 ", %" #A2 ", %" #A3 "}, %" #B ", add, 1, 1, 1;}"                                               \
                 : PTX_D##COUNT                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)))
#define PTX_WGMMA_RS_OF(N, COUNT, A0, A1, A2, A3, B, P)                   \
    if constexpr (COUNT == WIDTH) {                                       \
        if constexpr (std::is_same<T, __half>::value)                     \
            PTX_WGMMA_RS(N, COUNT, "f16", A0, A1, A2, A3, B, P);          \
        else                                                              \
            PTX_WGMMA_RS(N, COUNT, "bf16", A0, A1, A2, A3, B, P);         \
    }
template <typename T, int WIDTH>
__device__ inline void wgmma(float (&d)[WIDTH], const std::uint32_t* a, std::uint64_t b, bool add) {
    static_assert(WIDTH == 32 || WIDTH == 64, "this many columns have no instruction here");
    PTX_WGMMA_RS_OF(64, 32, 32, 33, 34, 35, 36, 37)
    PTX_WGMMA_RS_OF(128, 64, 64, 65, 66, 67, 68, 69)
}

}  // namespace ptx

#endif
#endif
