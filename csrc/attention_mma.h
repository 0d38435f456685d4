// The tunables of attention_mma.cu, and the settings that it chooses from when none are given.
//
// name      values               meaning
// BLOCK_M   0, 16, 32, 64, 128   query rows of a block; 0: as many as suit the problem
// BLOCK_N   0, 16, 32, 64, 128   keys of a tile
// WARPS_M   0, 1, 2, 4, 8        warps side by side over the rows; one owns BLOCK_M / WARPS_M, 16 or 32
// WARPS_N   0, 1, 2, 4, 8        such groups of warps over the keys; group g takes tiles g, g + WARPS_N, ...
// STAGES    0 to 4               tiles of K, and as many of V, that a group has in shared memory or on their way there
// HEAD_DIM  0, 64, 128           the one that these are for; 0: both
//
// BLOCK_M given, all problems run with that many rows, and what is 0 of the others is as in Default<head_dim, BLOCK_M>.
// Without it none of the others but HEAD_DIM may be given.
//
// Beside that EARLY_LAUNCH, 0 or 1: early_launch.h.
#ifndef ATTENTION_MMA_H
#define ATTENTION_MMA_H

#include "attention_family.h"
#include "early_launch.h"

#include <algorithm>

namespace attention_mma {

template <int D_, int BLOCK_M_, int BLOCK_N_, int WARPS_M_, int WARPS_N_, int STAGES_>
struct Setting {
    static constexpr int D = D_, kBlockM = BLOCK_M_, kBlockN = BLOCK_N_, kWarpsM = WARPS_M_, kWarpsN = WARPS_N_;
    static constexpr int kStages = STAGES_;

    static_assert(kWarpsM >= 1 && kBlockM % (16 * kWarpsM) == 0 && kBlockM <= 128,
                  "BLOCK_M must be a multiple of 16 * WARPS_M, at most 128: mma has 16 rows, and a warp has whole ones");
    static_assert(kBlockM / kWarpsM <= 32,
                  "BLOCK_M / WARPS_M must be 16 or 32: a warp's outputs of more rows do not fit its registers");
    static_assert(kBlockN >= 16 && kBlockN % 16 == 0 && kBlockN <= 128,
                  "BLOCK_N must be a multiple of 16, at most 128: the second product takes 16 keys at a time");
    static_assert(kWarpsN >= 1 && kWarpsM * kWarpsN <= 16 && kWarpsN < 16,
                  "WARPS_M * WARPS_N must be at most 16, and each group has one of 15 named barriers");
    static_assert(kStages >= 1 && kStages <= 4, "STAGES must be 1 to 4");

    static constexpr int kRows = kBlockM / kWarpsM;  // of a warp
    static constexpr int kTall = kRows / 16;         // mma tiles of a warp, one above the other
    static constexpr int kGroupThreads = 32 * kWarpsM, kThreads = kGroupThreads * kWarpsN;

    // Outputs, scores and, while they fit, Q are in registers.
    static constexpr bool kKeepQ = kTall * D <= 64 || kTall * D * kBlockN <= 128 * 64;
    static constexpr int kAccumulators = kTall * (D / 2 + kBlockN / 2) + (kKeepQ ? kTall * D / 4 : 0);
    static_assert(kAccumulators <= 224, "BLOCK_M / WARPS_M, BLOCK_N and head_dim ask for more registers than there are");

    static constexpr int kTileBytes = kBlockN * D * 2;
    static constexpr int kQBytes = kBlockM * D * 2;
    static constexpr int kRingBytes = kWarpsN * kStages * 2 * kTileBytes;
    // What the groups leave for the merge, over Q and the ring: outputs, and each row's maximum and sum.
    static constexpr int kPartialStride = D + 8;  // floats; the 8 keep rows off one another's banks
    static constexpr int kPartialBytes = kWarpsN == 1 ? 0 : kWarpsN * kBlockM * (kPartialStride + 2) * 4;
    static constexpr int kBytes = std::max(kQBytes + kRingBytes, kPartialBytes);
    static_assert(kBytes <= 227 * 1024, "the tiles leave the shared memory that a block can have");
    // What the register file and the shared memory of an SM of sm_80 leave room for: two blocks of up to 128 threads.
    static constexpr int kBlocksPerSm = kThreads <= 128 && kBytes <= 80 * 1024 ? 2 : 1;
};

// By the rows of a block. The fewer there are, the more groups of warps share the keys: the blocks of a small problem
// are few, and each must ask for as much memory at once as it can.
template <int D, int BLOCK_M_>
struct Default;
template <> struct Default<64, 16> : Setting<64, 16, 32, 1, 8, 1> {};
template <> struct Default<64, 32> : Setting<64, 32, 64, 2, 4, 2> {};
template <> struct Default<64, 64> : Setting<64, 64, 32, 2, 4, 2> {};
template <> struct Default<64, 128> : Setting<64, 128, 64, 4, 1, 2> {};
template <> struct Default<128, 16> : Setting<128, 16, 32, 1, 4, 1> {};
template <> struct Default<128, 32> : Setting<128, 32, 32, 2, 4, 2> {};
template <> struct Default<128, 64> : Setting<128, 64, 32, 4, 2, 2> {};
template <> struct Default<128, 128> : Setting<128, 128, 64, 4, 1, 1> {};

#ifndef BLOCK_M
#define BLOCK_M 0
#endif
#ifndef BLOCK_N
#define BLOCK_N 0
#endif
#ifndef WARPS_M
#define WARPS_M 0
#endif
#ifndef WARPS_N
#define WARPS_N 0
#endif
#ifndef STAGES
#define STAGES 0
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 0
#endif
#if BLOCK_M == 0 && (BLOCK_N || WARPS_M || WARPS_N || STAGES)
#error "BLOCK_N, WARPS_M, WARPS_N and STAGES go with BLOCK_M: give it, too"
#endif
static_assert(BLOCK_M == 0 || BLOCK_M == 16 || BLOCK_M == 32 || BLOCK_M == 64 || BLOCK_M == 128,
              "BLOCK_M must be 0, 16, 32, 64 or 128");
static_assert(HEAD_DIM == 0 || HEAD_DIM == 64 || HEAD_DIM == 128, "HEAD_DIM must be 0, 64 or 128");
#define ATTENTION_MMA_TUNABLES                                                                                 \
    "BLOCK_M=" ATTENTION_TEXT(BLOCK_M) " BLOCK_N=" ATTENTION_TEXT(BLOCK_N) " WARPS_M=" ATTENTION_TEXT(WARPS_M) \
    " WARPS_N=" ATTENTION_TEXT(WARPS_N) " STAGES=" ATTENTION_TEXT(STAGES) " HEAD_DIM=" ATTENTION_TEXT(HEAD_DIM) \
    " EARLY_LAUNCH=" ATTENTION_TEXT(EARLY_LAUNCH)

// Whether the setting for head_dim D is given, and which it is.
template <int D>
constexpr bool kFixed = BLOCK_M != 0 && (HEAD_DIM == 0 || HEAD_DIM == D);
template <int D, typename S = Default<D, BLOCK_M>>
using Fixed = Setting<D, BLOCK_M, given_or(BLOCK_N, S::kBlockN), given_or(WARPS_M, S::kWarpsM),
                      given_or(WARPS_N, S::kWarpsN), given_or(STAGES, S::kStages)>;

}  // namespace attention_mma

#endif
