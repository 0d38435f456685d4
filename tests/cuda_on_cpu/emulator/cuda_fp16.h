// __half, and conversions by name: PyTorch's builds switch the operators off. See emulator.h.
#ifndef EMULATOR_CUDA_FP16_H
#define EMULATOR_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
    std::uint16_t bits;
};
struct alignas(4) __half2 {
    __half x, y;
};

inline float __half2float(__half value) {
    const unsigned sign = (value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;
    // The exponent's bias differs by 112; scaling moves it, for subnormal numbers too.
    if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | rest << 13);
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 13) * 0x1p112f));
}

// To nearest, ties to even.
inline __half __float2half_rn(float value) {
    const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    unsigned half;
    if (rest > 0x7f800000u) {
        half = 0x7fffu;
    } else if (rest >= 0x477ff000u) {
        half = 0x7c00u;
    } else if (rest < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded fraction in the low bits
        half = __float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000u;
    } else {
        half = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
    }
    return {static_cast<std::uint16_t>(sign | half)};
}
inline __half __float2half(float value) { return __float2half_rn(value); }

inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 value) { return {__half2float(value.x), __half2float(value.y)}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }

#endif
