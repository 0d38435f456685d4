// What these kernels share, so that each file holds little but its own idea: 16-bit floats on the host, and the parts of
// the C interface that are the same everywhere. A project has a copy of this beside its sources.
#ifndef ATTENTION_COMMON_H
#define ATTENTION_COMMON_H

#include "attention.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace common {

inline float from_bits(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline std::uint32_t to_bits(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float from_half(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) return std::copysign(static_cast<float>(rest) * 0x1p-24f, from_bits(sign | 0x3f800000u));
    return from_bits(sign | ((rest << 13) + 0x38000000u));
}

// To nearest, ties to even.
inline std::uint16_t to_half(float x) {
    const std::uint32_t bits = to_bits(x), rest = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (rest > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (rest >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (rest < 0x38800000u)
        return static_cast<std::uint16_t>(sign | (to_bits(from_bits(rest) + 0.5f) - 0x3f000000u));
    return static_cast<std::uint16_t>(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13));
}

inline float from_bfloat(std::uint16_t x) { return from_bits(static_cast<std::uint32_t>(x) << 16); }
inline std::uint16_t to_bfloat(float x) {
    const std::uint32_t bits = to_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Element i of a tensor of any of the three types, as fp32, and back.
inline float get(const void* tensor, std::size_t i, int dtype) {
    if (dtype == ATTENTION_FP32) return static_cast<const float*>(tensor)[i];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(tensor)[i];
    return dtype == ATTENTION_FP16 ? from_half(bits) : from_bfloat(bits);
}
inline void put(void* tensor, std::size_t i, float x, int dtype) {
    if (dtype == ATTENTION_FP32)
        static_cast<float*>(tensor)[i] = x;
    else
        static_cast<std::uint16_t*>(tensor)[i] = dtype == ATTENTION_FP16 ? to_half(x) : to_bfloat(x);
}

inline int check(const attention_problem* problem, const void* q, const void* k, const void* v, const void* o) {
    if (!problem || !q || !k || !v || !o) return ATTENTION_ERROR_NULL;
    if (problem->batch < 1 || problem->heads < 1 || problem->seq_len < 1) return ATTENTION_ERROR_SHAPE;
    if (problem->head_dim < 1 || problem->head_dim > 128) return ATTENTION_ERROR_HEAD_DIM;
    if (problem->dtype < ATTENTION_FP16 || problem->dtype > ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    return ATTENTION_OK;
}

inline const char* error_string(int code) {
    switch (code) {
        case ATTENTION_OK: return "ok";
        case ATTENTION_ERROR_NULL: return "the problem or a tensor pointer is NULL";
        case ATTENTION_ERROR_SHAPE: return "batch, heads and seq_len must be at least 1";
        case ATTENTION_ERROR_HEAD_DIM: return "no code for this head_dim";
        case ATTENTION_ERROR_DTYPE: return "no code for this dtype";
        case ATTENTION_ERROR_TOO_LARGE: return "more rows than the workspace has room for";
        case ATTENTION_ERROR_MEMORY: return "no memory for the workspace";
        default: return "the CUDA runtime reports an error";
    }
}

}  // namespace common

// The two functions of the C interface that no kernel here has an idea of its own about.
#define COMMON_INTERFACE(tunables)                                                                      \
    extern "C" ATTENTION_EXPORT const char* attention_error_string(int code) {                          \
        return common::error_string(code);                                                              \
    }                                                                                                   \
    extern "C" ATTENTION_EXPORT const char* attention_tunables(void) { return tunables; }

#endif
