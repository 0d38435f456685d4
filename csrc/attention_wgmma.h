// The tunables of attention_wgmma.cu, and the settings that it chooses from when none are given.
//
// A tunable is accepted only if the kernel is correct with it and keeps its tiles in registers and shared memory; the
// compiler stops at any other. Those that end in a head_dim hold for that one alone.
//
// name                  values
// CONSUMERS_64, _128    0, 1, 2, 3     warpgroups that compute; each has 64 query rows of a tile
// BLOCK_N_64, _128      0, 64 to 192   keys of a tile, in steps of 16
// STAGES_64, _128       0, 2 to 4      key tiles in shared memory, and as many value tiles
// PINGPONG              0, 1           1: the warpgroups issue their products in turn, so that the softmax of one runs
//                                      beside the products of another
// PERSISTENT            0, 1           1: as many blocks as there are multiprocessors go through all tiles, and load
//                                      a tile's operands while the one before is finished; 0: one block a tile
// EARLY_LAUNCH          0, 1           early_launch.h
//
// Of the first three, 0 is the default. Where all of a head_dim are 0 the problem chooses Tall or Low of Settings.
// Where one is given, all problems of that head_dim run with it, and with what Tall has in place of those that are 0.
#ifndef ATTENTION_WGMMA_H
#define ATTENTION_WGMMA_H

#include "early_launch.h"
#include "tunables.h"

#include <type_traits>

#ifndef CONSUMERS_64
#define CONSUMERS_64 0
#endif
#ifndef CONSUMERS_128
#define CONSUMERS_128 0
#endif
#ifndef BLOCK_N_64
#define BLOCK_N_64 0
#endif
#ifndef BLOCK_N_128
#define BLOCK_N_128 0
#endif
#ifndef STAGES_64
#define STAGES_64 0
#endif
#ifndef STAGES_128
#define STAGES_128 0
#endif
#ifndef PINGPONG
#define PINGPONG 1
#endif
#ifndef PERSISTENT
#define PERSISTENT 1
#endif

static_assert(PINGPONG == 0 || PINGPONG == 1, "PINGPONG must be 0 or 1");
static_assert(PERSISTENT == 0 || PERSISTENT == 1, "PERSISTENT must be 0 or 1");

namespace attention_wgmma {

constexpr int kWarpgroup = 128, kRowsOfWarpgroup = 64, kMostShared = 227 * 1024, kFileOfRegisters = 64 * 1024;

template <int D_, int CONSUMERS_, int BLOCK_N_, int STAGES_>
struct Setting {
    static constexpr int D = D_, kConsumers = CONSUMERS_, kBlockN = BLOCK_N_, kStages = STAGES_;
    static constexpr int kBlockM = kConsumers * kRowsOfWarpgroup;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    static_assert(kConsumers >= 1 && kConsumers <= 3,
                  "CONSUMERS must be 1, 2 or 3: a fourth would leave fewer registers than one tile of scores takes");
    static_assert(kBlockN >= 64 && kBlockN <= 192 && kBlockN % 16 == 0,
                  "BLOCK_N must be 64 to 192 in steps of 16: a product sums over 16 keys at a time");
    static_assert(kStages >= 2 && kStages <= 4,
                  "STAGES must be 2, 3 or 4: the next keys are multiplied while the last values are still read");

    // Two blocks of one consumer share a multiprocessor. Registers of a thread: at the launch the same for all; then
    // the loading warpgroup gives most of its own to those that compute.
    static constexpr int kBlocksPerSm = kConsumers == 1 ? 2 : 1;
    static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 24;
    static constexpr int kConsumerRegisters = kConsumers == 1 ? 232 : kConsumers == 2 ? 240 : 160;
    static_assert(kBlocksPerSm * kWarpgroup * (kProducerRegisters + kConsumers * kConsumerRegisters) <=
                      kFileOfRegisters,
                  "more registers than a multiprocessor has");
    // Scores in fp32 and, while the next ones are computed, the last ones in 16 bits, outputs, and the rest.
    static_assert(kBlockN / 2 + kBlockN / 4 + D / 2 + 24 <= kConsumerRegisters,
                  "scores and outputs leave the registers of a thread: lower BLOCK_N or CONSUMERS");

    static constexpr int kQueryBytes = kBlockM * D * 2, kKeyBytes = kBlockN * D * 2;
    static constexpr int kBarriers = 2 + 4 * kStages;
    static constexpr int kSharedBytes = kQueryBytes + 2 * kStages * kKeyBytes + kBarriers * 8;
    static_assert(kBlocksPerSm * (kSharedBytes + 1024) <= kMostShared + 1024,
                  "the tiles leave the shared memory of a multiprocessor: lower BLOCK_N, STAGES or CONSUMERS");
};

// Tall blocks read K and V the least often. Low ones, of 64 rows, are for problems that have too few tall ones.
template <int D>
struct Settings;
template <>
struct Settings<64> {
    using Tall = Setting<64, given_or(CONSUMERS_64, 3), given_or(BLOCK_N_64, 128), given_or(STAGES_64, 2)>;
    using Low = std::conditional_t<CONSUMERS_64 || BLOCK_N_64 || STAGES_64, Tall, Setting<64, 1, 128, 2>>;
};
template <>
struct Settings<128> {
    using Tall = Setting<128, given_or(CONSUMERS_128, 2), given_or(BLOCK_N_128, 128), given_or(STAGES_128, 2)>;
    using Low = std::conditional_t<CONSUMERS_128 || BLOCK_N_128 || STAGES_128, Tall, Setting<128, 1, 64, 2>>;
};

}  // namespace attention_wgmma

#define ATTENTION_WGMMA_TUNABLES                                                                            \
    "CONSUMERS_64=" ATTENTION_TEXT(CONSUMERS_64) " CONSUMERS_128=" ATTENTION_TEXT(CONSUMERS_128)            \
    " BLOCK_N_64=" ATTENTION_TEXT(BLOCK_N_64) " BLOCK_N_128=" ATTENTION_TEXT(BLOCK_N_128)                   \
    " STAGES_64=" ATTENTION_TEXT(STAGES_64) " STAGES_128=" ATTENTION_TEXT(STAGES_128)                       \
    " PINGPONG=" ATTENTION_TEXT(PINGPONG) " PERSISTENT=" ATTENTION_TEXT(PERSISTENT)                          \
    " EARLY_LAUNCH=" ATTENTION_TEXT(EARLY_LAUNCH)

#endif
