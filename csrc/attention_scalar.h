// What attention_scalar.cu and its CPU twin must agree on: tunables, tile sizes, which problems are taken.
//
// A tunable is accepted only if the kernel is correct with it. Anything else stops the compiler here, with
// the reason: a wrong setting must not become a binary that somebody can time.
//
// name         values       CUDA                                        CPU twin
// BLOCK_M      16, 32, 64   query rows of a block                       query rows of a tile
// NUM_WARPS    4, 8         warps of a block; one owns BLOCK_M /        register blocks of a tile; one has
//                           NUM_WARPS query rows (policies 0 and 2)     BLOCK_M / NUM_WARPS query rows
// VEC_WIDTH    1, 2, 4      elements moved by one load                  SIMD registers a block is wide
// SYNC_POLICY  0, 2, 5      block barriers per key tile                 the same phases as nested loops
// REDUCE       serial, warp how a row's maximum and sum over one key    one key after the other, or by SIMD
//                           tile are found: one thread, or shuffles     lanes and then a tree
//
// Numbers are passed as -DBLOCK_M=32, the choice as -DREDUCE_WARP=1 or -DREDUCE_SERIAL=1. With none of them
// given the seed 32/8/4/2/warp is built; as soon as one is given, REDUCE must be given too, because the
// preprocessor cannot see a misspelt choice (-DREDUCE_WRAP=1) in any other way.
#ifndef ATTENTION_SCALAR_H
#define ATTENTION_SCALAR_H

#include "attention.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#if !defined(BLOCK_M) && !defined(NUM_WARPS) && !defined(VEC_WIDTH) && !defined(SYNC_POLICY) && \
    !defined(REDUCE_WARP) && !defined(REDUCE_SERIAL)
#define REDUCE_WARP 1
#endif
#ifndef BLOCK_M
#define BLOCK_M 32
#endif
#ifndef NUM_WARPS
#define NUM_WARPS 8
#endif
#ifndef VEC_WIDTH
#define VEC_WIDTH 4
#endif
#ifndef SYNC_POLICY
#define SYNC_POLICY 2
#endif
#ifndef REDUCE_WARP
#define REDUCE_WARP 0
#endif
#ifndef REDUCE_SERIAL
#define REDUCE_SERIAL 0
#endif

static_assert(
    BLOCK_M == 16 || BLOCK_M == 32 || BLOCK_M == 64,
    "BLOCK_M must be 16, 32 or 64: with fewer rows than 16 some threads would own none, with more than 64 "
    "the tiles leave the 99 KiB of shared memory that every target has");
static_assert(
    NUM_WARPS == 4 || NUM_WARPS == 8,
    "NUM_WARPS must be 4 or 8: every warp must own the same whole number of query rows for every BLOCK_M");
static_assert(
    VEC_WIDTH == 1 || VEC_WIDTH == 2 || VEC_WIDTH == 4,
    "VEC_WIDTH must be 1, 2 or 4: one load moves at most 16 bytes, and rows are cut into equal loads");
static_assert(
    SYNC_POLICY == 0 || SYNC_POLICY == 2 || SYNC_POLICY == 5,
    "SYNC_POLICY must be 0, 2 or 5: warps that share nothing need no barrier, a shared key tile needs two "
    "(filled, used up), block-wide phases need five; any other count is a race or an idle barrier");
static_assert((REDUCE_WARP == 1) + (REDUCE_SERIAL == 1) == 1,
              "REDUCE must be one of warp (-DREDUCE_WARP=1) and serial (-DREDUCE_SERIAL=1)");

namespace attention_scalar {

// Keys of a tile. K and V tiles hold 4096 elements whatever head_dim is, which keeps shared memory in bounds.
template <int D>
constexpr int kBlockN = 4096 / D;

// Query rows that one warp (CPU: one register block) owns.
constexpr int kRows = BLOCK_M / NUM_WARPS;

inline bool is_aligned(const void* pointer, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

// ATTENTION_OK, or why this kernel does not take the problem. vector: elements that one load moves.
inline int check_problem(const attention_problem* problem, const void* q, const void* k, const void* v,
                         const void* o, int vector) {
    if (!problem || !q || !k || !v || !o) return ATTENTION_ERROR_NULL;
    const attention_problem& p = *problem;
    if (p.batch < 1 || p.heads < 1 || p.seq_len < 1) return ATTENTION_ERROR_SHAPE;
    if (p.head_dim != 64 && p.head_dim != 128) return ATTENTION_ERROR_HEAD_DIM;
    if (p.dtype < ATTENTION_FP16 || p.dtype > ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    if (p.threads < 0) return ATTENTION_ERROR_THREADS;
    const std::size_t bytes = static_cast<std::size_t>(vector) * (p.dtype == ATTENTION_FP32 ? 4 : 2);
    for (const void* pointer : {q, k, v, o})
        if (!is_aligned(pointer, bytes)) return ATTENTION_ERROR_ALIGNMENT;
    // One launch numbers its query tiles, and a tile its rows, with an int.
    const std::int64_t tiles = (static_cast<std::int64_t>(p.seq_len) + BLOCK_M - 1) / BLOCK_M;
    if (p.seq_len > INT32_MAX - 256) return ATTENTION_ERROR_TOO_LARGE;
    if (p.batch > INT32_MAX / tiles / p.heads) return ATTENTION_ERROR_TOO_LARGE;
    return ATTENTION_OK;
}

inline const char* refusal(int code) {
    switch (code) {
        case ATTENTION_OK: return "ok";
        case ATTENTION_ERROR_NULL: return "the problem or a tensor pointer is NULL";
        case ATTENTION_ERROR_SHAPE: return "batch, heads and seq_len must be at least 1";
        case ATTENTION_ERROR_HEAD_DIM: return "head_dim must be 64 or 128";
        case ATTENTION_ERROR_DTYPE: return "dtype must be fp16 (0), bf16 (1) or fp32 (2)";
        case ATTENTION_ERROR_ALIGNMENT:
            return "q, k, v and o must be aligned to VEC_WIDTH elements (CPU: to one)";
        case ATTENTION_ERROR_TOO_LARGE: return "more query tiles than one launch can number (2^31 - 1)";
        case ATTENTION_ERROR_THREADS: return "threads must not be negative";
        case ATTENTION_ERROR_MEMORY: return "no host memory for the workspace";
        default: return "unknown error code";
    }
}

}  // namespace attention_scalar

#define ATTENTION_TEXT_(x) #x
#define ATTENTION_TEXT(x) ATTENTION_TEXT_(x)
#define ATTENTION_SCALAR_TUNABLES                                                                            \
    "BLOCK_M=" ATTENTION_TEXT(BLOCK_M) " NUM_WARPS=" ATTENTION_TEXT(NUM_WARPS) " VEC_WIDTH=" ATTENTION_TEXT( \
        VEC_WIDTH) " SYNC_POLICY=" ATTENTION_TEXT(SYNC_POLICY) " REDUCE=" ATTENTION_REDUCE_NAME
#if REDUCE_WARP
#define ATTENTION_REDUCE_NAME "warp"
#else
#define ATTENTION_REDUCE_NAME "serial"
#endif

#endif
