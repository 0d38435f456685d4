// CUDA's runtime, as far as this project's kernels use it: see emulator.h.
#ifndef EMULATOR_CUDA_RUNTIME_H
#define EMULATOR_CUDA_RUNTIME_H

#define CUDA_EMULATOR 1

#include "emulator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ __attribute__((section("emulated_shared")))


using std::max;
using std::min;

template <typename T>
struct emulator_vector2 {
    T x, y;
};
using uint2 = emulator_vector2<unsigned>;
using float2 = emulator_vector2<float>;
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Barriers and what a warp does as one.

inline void __syncthreads(EMULATOR_HERE) {
    emulator::barrier_sync({"__syncthreads", file, line}, 0, emulator::threads_of_block());
}

inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATOR_HERE) {
    emulator::meet({"__syncwarp", file, line}, mask, nullptr, [](void* const*, unsigned) {});
}

inline void __threadfence() {}
inline void __threadfence_block() {}

namespace emulator {

template <typename T>
struct Exchange {
    T value;
    unsigned from;
    T result;
};

// Each lane gets the value of lane `from`; one that is not there gives nothing that may be used.
template <typename T>
T exchange(const Place& place, unsigned mask, T value, unsigned from) {
    Exchange<T> mine{value, from, value};
    meet(place, mask, &mine, [](void* const* slots, unsigned mask) {
        for (unsigned lane = 0; lane < kWarp; ++lane) {
            if (!(mask >> lane & 1)) continue;
            auto* to = static_cast<Exchange<T>*>(slots[lane]);
            if (!(mask >> to->from & 1)) fail("a shuffle reads lane %u, which is not in mask %08x", to->from, mask);
            to->result = static_cast<const Exchange<T>*>(slots[to->from])->value;
        }
    });
    return mine.result;
}

inline unsigned ballot(const Place& place, unsigned mask, bool vote) {
    Exchange<unsigned> mine{vote, 0, 0};
    meet(place, mask, &mine, [](void* const* slots, unsigned mask) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < kWarp; ++lane)
            if (mask >> lane & 1) votes |= static_cast<Exchange<unsigned>*>(slots[lane])->value << lane;
        for (unsigned lane = 0; lane < kWarp; ++lane)
            if (mask >> lane & 1) static_cast<Exchange<unsigned>*>(slots[lane])->result = votes;
    });
    return mine.result;
}

}  // namespace emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, EMULATOR_HERE) {
    const unsigned segment = emulator::self().lane & ~static_cast<unsigned>(width - 1);
    return emulator::exchange({"__shfl_sync", file, line}, mask, value,
                              segment | (static_cast<unsigned>(from) & static_cast<unsigned>(width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATOR_HERE) {
    const unsigned lane = emulator::self().lane, from = lane ^ static_cast<unsigned>(bits);
    const unsigned after = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
    return emulator::exchange({"__shfl_xor_sync", file, line}, mask, value, from < after ? from : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, EMULATOR_HERE) {
    const unsigned lane = emulator::self().lane, from = lane + distance;
    const unsigned after = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
    return emulator::exchange({"__shfl_down_sync", file, line}, mask, value, from < after ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, EMULATOR_HERE) {
    const unsigned lane = emulator::self().lane, first = lane & ~static_cast<unsigned>(width - 1);
    return emulator::exchange({"__shfl_up_sync", file, line}, mask, value,
                              lane >= first + distance ? lane - distance : lane);
}
inline unsigned __ballot_sync(unsigned mask, int vote, EMULATOR_HERE) {
    return emulator::ballot({"__ballot_sync", file, line}, mask, vote != 0);
}
inline int __any_sync(unsigned mask, int vote, EMULATOR_HERE) {
    return emulator::ballot({"__any_sync", file, line}, mask, vote != 0) != 0;
}
inline int __all_sync(unsigned mask, int vote, EMULATOR_HERE) {
    return emulator::ballot({"__all_sync", file, line}, mask, vote != 0) == mask;
}

template <typename T>
T __ldg(const T* from) {
    return *from;
}
template <typename T>
T atomicAdd(T* to, T value) {
    const T old = *to;
    *to = static_cast<T>(old + value);
    return old;
}

// Arithmetic by CUDA's names.

inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }

// The runtime. Work is done when the call returns; what was asked of it is checked.

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999
};
using cudaStream_t = struct CUstream_st*;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

inline cudaError_t& emulator_last_error() {
    static cudaError_t last = cudaSuccess;
    return last;
}
inline cudaError_t emulator_remember(int code) {
    if (code) emulator_last_error() = static_cast<cudaError_t>(code);
    return static_cast<cudaError_t>(code);
}

inline const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : error == cudaErrorInvalidValue ? "invalid argument" : "error";
}
inline cudaError_t cudaGetLastError() { return std::exchange(emulator_last_error(), cudaSuccess); }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount: *value = emulator::settings.multiprocessors; break;
        case cudaDevAttrComputeCapabilityMajor: *value = emulator::settings.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = emulator::settings.minor; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = static_cast<int>(emulator::settings.shared_optin);
            break;
        default: return emulator_remember(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

template <typename... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute, int value) {
    return emulator_remember(emulator::allow_shared(reinterpret_cast<const void*>(kernel), value));
}

struct cudaFuncAttributes {
    int maxThreadsPerBlock, ptxVersion;
};
// As if every kernel had been compiled for the device with what it has.
template <typename... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)(P...)) {
    attributes->maxThreadsPerBlock = emulator::settings.major == 9 ? 1024 : 32;
    attributes->ptxVersion = emulator::settings.major * 10 + emulator::settings.minor;
    return cudaSuccess;
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    std::size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned numAttrs = 0;
};

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
    bool early = false;
    for (unsigned i = 0; i < config->numAttrs; ++i) early |= config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    if (early && emulator::settings.major < 9) return emulator_remember(cudaErrorNotSupported);
    return emulator_remember(emulator::launch(reinterpret_cast<const void*>(kernel), config->gridDim, config->blockDim,
                                              config->dynamicSmemBytes, config->stream, early,
                                              [&] { kernel(arguments...); }));
}

struct emulator_pool {
    bool keeps = false;
};
using cudaMemPool_t = emulator_pool*;
enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
struct cudaMemPoolProps {
    cudaMemAllocationType allocType;
    struct {
        cudaMemLocationType type;
        int id;
    } location;
};
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* wanted) {
    if (wanted->allocType != cudaMemAllocationTypePinned || wanted->location.type != cudaMemLocationTypeDevice)
        emulator::fail("cudaMemPoolCreate: not memory of a device");
    *pool = new emulator_pool;
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void*) {
    pool->keeps = true;
    return cudaSuccess;
}
inline cudaError_t cudaMallocAsync(void** to, std::size_t bytes, cudaStream_t stream) {
    emulator::check_stream(stream, "cudaMallocAsync");
    *to = std::malloc(bytes);
    if (!*to) return emulator_remember(cudaErrorMemoryAllocation);
    std::memset(*to, 0xff, bytes);
    emulator::counts.allocations[*to] = bytes;
    return cudaSuccess;
}
inline cudaError_t cudaMallocFromPoolAsync(void** to, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    if (!pool || !pool->keeps) emulator::fail("cudaMallocFromPoolAsync: from a pool that gives everything back");
    return cudaMallocAsync(to, bytes, stream);
}
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    emulator::check_stream(stream, "cudaFreeAsync");
    if (!emulator::counts.allocations.erase(pointer)) emulator::fail("cudaFreeAsync of %p, which is not allocated", pointer);
    std::free(pointer);
    return cudaSuccess;
}

#endif
