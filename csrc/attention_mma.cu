// Attention forward on tensor cores by mma.sync, for sm_80 and newer: fp16 and bf16, head_dim 64 and 128.
//
// IDEA. A block computes BLOCK_M query rows of one head. Scores never leave registers: the accumulators of Q K^T are,
// pair by pair, the left operand that P V wants. A warp owns 16 or 32 whole rows, so that a row's maximum is a matter
// of four lanes. It keeps, for each row, the largest score so far (m), the sum of exp(score - m) (l) and the
// unnormalised output (o); when a tile of keys raises m, l and o shrink by exp(m_old - m_new), and o / l is the result.
//   Online softmax: Milakov and Gimelshein, 2018, arXiv:1805.02867.
//   Rows over warps, keys inside: Dao, "FlashAttention-2", 2023, arXiv:2307.08691.
//   Keys over groups of warps, merged at the end: the split of Dao et al., "Flash-Decoding", 2023, inside a block.
//
// TWO REGIMES, by shape. A large problem gets 128 rows a block and one group of warps: each K and V tile is read from
// shared memory once for 32 rows, since with 16 the reads, 256 bytes for each mma, would take as long as the mma. A
// small one has too few rows to give every SM such a block. Its blocks are 64, 32 or 16 rows tall, and WARPS_N groups
// of warps walk over interleaved tiles of keys, each on its own: own tiles, own copies under way, own barriers. At the
// end they meet, and their (m, l, o) are merged through shared memory in the order of the groups: the same bits always.
//   Groups spread over the blocks of a cluster, which merge through one another's shared memory, were tried and were
// slower on an H200 wherever they were: by 8% (8 heads of 1023 rows) to 32% (of 239).
//
// COPIES. Tiles come by cp.async, around registers; keys past the end as zeros. A group has STAGES tiles of K and as
// many of V, and asks for the next as soon as all its warps are done with the one in its place: one barrier of the
// group for each tile. In shared memory the 16-byte pieces of row r are permuted, piece c lying at c ^ (r % 8), so
// that neither the copies nor ldmatrix, which reads the same piece of eight rows, meet a bank twice.
//
// NUMBERS. Products are exact, sums fp32. Scores are scaled in fp32, together with the subtraction of m, by
// scale * log2(e), for exp2. P is rounded to the input type for the second product, its sum l is of what was before.
// A negative scale negates the scores, so that m stays the largest.
//
// CAUSAL. Tiles that no row of a block sees are not loaded, those that no row of a warp sees are not computed. Blocks
// near the end of the sequence have the most to do and start first, among as many heads as K and V of which fit L2.
//
// SHARED MEMORY. Q: BLOCK_M x D x 2 bytes; K and V: WARPS_N x STAGES x 2 tiles of BLOCK_N x D x 2 bytes; the merge
// takes the same place, WARPS_N x BLOCK_M x (D + 10) x 4 bytes. REGISTERS, for each 16 rows of a warp: D / 2 outputs,
// BLOCK_N / 2 scores, and D / 4 of Q unless it is read again for each tile of keys.
//
// COMPILED by nvcc 12.4 the settings of attention_mma.h take, for head_dim 64, 108 to 204 registers on sm_90 and 122 to
// 228 on sm_80 and sm_89; for 128, 147 to 238 and 183 to 255; none spills. nvcc 13.0 gives more on sm_90a, 124 to 229
// and 188 to 255, and there the tallest setting of head_dim 128 spills 4 bytes.
//
// MEASURED on one H200, nvcc 13.0, PyTorch 2.11.0+cu130: medians of replays of a CUDA graph, fp16, beside the fastest
// SDPA backend, which was cuDNN in each row (benchmarks/kernels.py):
//   B1 H8 S512 D = 64             5.3 us   102 TFLOP/s   0.60 of cuDNN's time; 0.52 of flash's
//   B1 H8 S239 D = 64             3.1 us    37 TFLOP/s   0.44
//   B1 H8 S1023 D = 64           13.4 us   160 TFLOP/s   0.88
//   B4 H16 S4096 D = 64           992 us   277 TFLOP/s   1.69   causal   495 us   277 TFLOP/s   1.50
//   B4 H16 S4096 D = 128         1657 us   332 TFLOP/s   1.92   causal   863 us   319 TFLOP/s   1.66
// An empty launch takes 0.7 us. Large problems belong to attention_wgmma.cu there; flash, which like this kernel uses
// mma.sync, takes 937 us for the unmasked one of D = 64 and 1682 us for that of D = 128. Right, the same bits each time;
// memcheck, initcheck, synccheck and racecheck are silent on 130 causal rows of bf16, D = 128.
#include "attention_mma.h"
#include "ptx.cuh"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace attention_mma {

using attention_family::divide_up;
using ptx::Address;

// Two fp32 in the 16-bit type, the first in the low half.
template <typename T>
__device__ inline std::uint32_t pack(float low, float high);
template <>
__device__ inline std::uint32_t pack<__half>(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    std::uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
template <>
__device__ inline std::uint32_t pack<__nv_bfloat16>(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    std::uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

// Where 16-byte piece `piece` of row `row` lies in a tile of D columns, in bytes.
template <int D>
__device__ inline Address place(unsigned row, unsigned piece) {
    return row * D * 2 + (piece ^ (row % 8)) * 16;
}

// Starts the copies of ROWS rows of matrix [seq_len, D], from first_row on, done by WORKERS threads. They lie one
// behind the other there, whatever their place in the tile.
template <int D, int ROWS, int WORKERS, typename T>
__device__ inline void stage(Address tile, const T* matrix, int first_row, int seq_len, unsigned worker) {
    constexpr unsigned kPieces = ROWS * D / 8;
    const T* from = matrix + static_cast<std::ptrdiff_t>(first_row) * D + worker * 8;
#pragma unroll
    for (unsigned i = 0; i < (kPieces + WORKERS - 1) / WORKERS; ++i) {
        const unsigned number = worker + i * WORKERS, row = number / (D / 8), piece = number % (D / 8);
        if (kPieces % WORKERS != 0 && number >= kPieces) break;
        ptx::copy_async_16(tile + place<D>(row, piece), from + i * WORKERS * 8, static_cast<int>(row) < seq_len - first_row);
    }
}

// Max and sum over the four lanes that share a row.
__device__ inline float largest_of_quad(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float sum_of_quad(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// What is subtracted, scaled, from scaled scores. A row that has seen -inf only must not compute -inf - -inf.
__device__ inline float base_of(float m, float scale_log2) { return m == -INFINITY ? 0.0f : m * scale_log2; }

// What a launch is told.
struct Task {
    int seq_len, heads;  // heads of all batch entries
    int tiles;           // of queries, in a head
    int heads_at_once;   // a band: blocks of so many heads are in order of their work
    attention_family::Divisor by_band, by_heads, by_last_heads;  // blocks of a band, heads of one, heads of the last one
    bool causal, negate;
    float scale_log2;  // above zero
};

// What one warp computes: kTall x 16 rows, from first_row on, against the keys of its group.
// Lane = 4 g + t. Of 16 rows and 8 columns a lane has rows g and g + 8 ("halves"), columns 2 t and 2 t + 1.
template <typename T, typename S>
struct Warp {
    static constexpr int D = S::D, kTall = S::kTall, kKeys = S::kBlockN / 8, kColumns = D / 8;

    const Task& task;
    unsigned lane;
    int first_row;
    Address q_rows;  // the warp's in the Q tile
    std::uint32_t q[S::kKeepQ ? kTall : 1][S::kKeepQ ? D / 16 : 1][4];
    float scores[kTall][kKeys][4], out[kTall][kColumns][4];
    float m[kTall][2], l[kTall][2];  // l: of this lane's columns only, until `finish`

    __device__ Warp(const Task& task, unsigned lane, int first_row, Address q_rows)
        : task(task), lane(lane), first_row(first_row), q_rows(q_rows) {
#pragma unroll
        for (int r = 0; r < kTall; ++r) {
            m[r][0] = m[r][1] = -INFINITY, l[r][0] = l[r][1] = 0.0f;
#pragma unroll
            for (int c = 0; c < kColumns; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) out[r][c][i] = 0.0f;
        }
    }

    // Rows 16 r to 16 r + 15 of Q, columns 16 d to 16 d + 15, as the left operand.
    __device__ void load_q(std::uint32_t (&to)[4], int r, int d) const {
        ptx::load_matrices(to, q_rows + r * 16 * D * 2 + place<D>(lane % 16, 2 * d + lane / 16));
    }

    __device__ void keep_q() {
        if constexpr (S::kKeepQ) {
#pragma unroll
            for (int r = 0; r < kTall; ++r)
#pragma unroll
                for (int d = 0; d < D / 16; ++d) load_q(q[r][d], r, d);
        }
    }

    // scores = Q K^T for the keys of a tile.
    __device__ void score(Address k_tile) {
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int n = 0; n < kKeys; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) scores[r][n][i] = 0.0f;
        // Matrices of one ldmatrix: keys 0 to 7, columns 0 to 7 and 8 to 15; then keys 8 to 15.
        const unsigned key = lane / 16 * 8 + lane % 8, piece = lane / 8 % 2;
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            std::uint32_t left[kTall][4];
#pragma unroll
            for (int r = 0; r < kTall; ++r) {
                if constexpr (S::kKeepQ) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) left[r][i] = q[r][d][i];
                } else {
                    load_q(left[r], r, d);
                }
            }
#pragma unroll
            for (int n = 0; n < kKeys; n += 2) {
                std::uint32_t right[4];
                ptx::load_matrices(right, k_tile + n * 8 * D * 2 + place<D>(key, 2 * d + piece));
#pragma unroll
                for (int r = 0; r < kTall; ++r) {
                    ptx::multiply_add<T>(scores[r][n], left[r], right[0], right[1]);
                    ptx::multiply_add<T>(scores[r][n + 1], left[r], right[2], right[3]);
                }
            }
        }
    }

    // Scores of keys that a row must not see become -inf, whatever the product was.
    __device__ void mask(int first_key) {
        if (task.negate) {
#pragma unroll
            for (int r = 0; r < kTall; ++r)
#pragma unroll
                for (int n = 0; n < kKeys; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) scores[r][n][i] = -scores[r][n][i];
        }
        const int last_key = first_key + S::kBlockN - 1;
        if (last_key < task.seq_len && !(task.causal && last_key > first_row)) return;
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + 16 * r + 8 * half + static_cast<int>(lane / 4);
                const int keys = task.causal ? min(task.seq_len, row + 1) : task.seq_len;
                const int mine = keys - first_key - 2 * static_cast<int>(lane % 4);  // column 8 n + i of this lane is seen if below
#pragma unroll
                for (int n = 0; n < kKeys; ++n)
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        if (8 * n + i >= mine) scores[r][n][2 * half + i] = -INFINITY;
            }
    }

    // Scores become weights, and what was summed so far shrinks to the new maximum.
    __device__ void weigh() {
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float top = m[r][half];
#pragma unroll
                for (int n = 0; n < kKeys; ++n)
                    top = fmaxf(top, fmaxf(scores[r][n][2 * half], scores[r][n][2 * half + 1]));
                top = largest_of_quad(top);
                const float base = base_of(top, task.scale_log2);
                const float shrink = ptx::exp2_approximate(fmaf(m[r][half], task.scale_log2, -base));
                m[r][half] = top;
                float sum = 0.0f;
#pragma unroll
                for (int n = 0; n < kKeys; ++n)
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        float& score = scores[r][n][2 * half + i];
                        score = ptx::exp2_approximate(fmaf(score, task.scale_log2, -base));
                        sum += score;
                    }
                l[r][half] = fmaf(l[r][half], shrink, sum);
#pragma unroll
                for (int c = 0; c < kColumns; ++c)
#pragma unroll
                    for (int i = 0; i < 2; ++i) out[r][c][2 * half + i] *= shrink;
            }
    }

    // out += P V for the keys of a tile.
    __device__ void accumulate(Address v_tile) {
        // Matrices of one ldmatrix: keys 0 to 7 and 8 to 15 of columns 0 to 7; then columns 8 to 15.
        const unsigned key = lane % 16, piece = lane / 16;
#pragma unroll
        for (int n = 0; n < kKeys; n += 2) {
            std::uint32_t left[kTall][4];
#pragma unroll
            for (int r = 0; r < kTall; ++r)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    left[r][i] = pack<T>(scores[r][n + i / 2][i % 2 * 2], scores[r][n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int c = 0; c < kColumns; c += 2) {
                std::uint32_t right[4];
                ptx::load_matrices_transposed(right, v_tile + n * 8 * D * 2 + place<D>(key, c + piece));
#pragma unroll
                for (int r = 0; r < kTall; ++r) {
                    ptx::multiply_add<T>(out[r][c], left[r], right[0], right[1]);
                    ptx::multiply_add<T>(out[r][c + 1], left[r], right[2], right[3]);
                }
            }
        }
    }

    __device__ void finish() {
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) l[r][half] = sum_of_quad(l[r][half]);
    }

    // Writes o / l to o [seq_len, D], through the warp's rows of the Q tile, so that lanes store 16 bytes each.
    __device__ void store(unsigned char* q_tile_rows, T* o) const {
        __syncwarp();  // every lane has read its part of Q
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float factor = 1.0f / l[r][half];
                const unsigned row = 16 * r + 8 * half + lane / 4;
#pragma unroll
                for (int c = 0; c < kColumns; ++c) {
                    const std::uint32_t pair =
                        pack<T>(out[r][c][2 * half] * factor, out[r][c][2 * half + 1] * factor);
                    memcpy(q_tile_rows + place<D>(row, c) + 4 * (lane % 4), &pair, sizeof pair);
                }
            }
        __syncwarp();
#pragma unroll
        for (unsigned i = lane; i < S::kRows * D / 8; i += 32) {
            const unsigned row = i / (D / 8), piece = i % (D / 8);
            if (static_cast<int>(row) < task.seq_len - first_row)
                *reinterpret_cast<uint4*>(o + static_cast<std::ptrdiff_t>(first_row) * D + i * 8) =
                    *reinterpret_cast<const uint4*>(q_tile_rows + place<D>(row, piece));
        }
    }

    // Leaves outputs, maxima and sums for the merge. partials: [kBlockM, kPartialStride] of this group; statistics:
    // [kBlockM] pairs.
    __device__ void leave(float* partials, float2* statistics, int first_row_of_block) const {
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned row = first_row - first_row_of_block + 16 * r + 8 * half + lane / 4;
                float2* to = reinterpret_cast<float2*>(partials + row * S::kPartialStride + 2 * (lane % 4));
#pragma unroll
                for (int c = 0; c < kColumns; ++c) to[4 * c] = make_float2(out[r][c][2 * half], out[r][c][2 * half + 1]);
                if (lane % 4 == 0) statistics[row] = make_float2(m[r][half], l[r][half]);
            }
    }
};

// Adds up what the groups left, in their order, and writes o [seq_len, D]. Four columns a thread at a time.
template <typename T, typename S>
__device__ inline void merge(const float* partials, const float2* statistics, T* o, const Task& task, int first_row) {
    constexpr unsigned kQuads = S::D / 4;
    for (unsigned i = threadIdx.x; i < S::kBlockM * kQuads; i += S::kThreads) {
        const unsigned row = i / kQuads, column = i % kQuads * 4;
        if (static_cast<int>(row) >= task.seq_len - first_row) break;
        float2 of_groups[S::kWarpsN];
        float top = -INFINITY;
#pragma unroll
        for (int g = 0; g < S::kWarpsN; ++g) {
            of_groups[g] = statistics[g * S::kBlockM + row];
            top = fmaxf(top, of_groups[g].x);
        }
        const float base = base_of(top, task.scale_log2);
        float l = 0.0f, sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int g = 0; g < S::kWarpsN; ++g) {
            const float2 of_group = of_groups[g];
            const float weight = ptx::exp2_approximate(fmaf(of_group.x, task.scale_log2, -base));
            const float4 part =
                *reinterpret_cast<const float4*>(partials + (g * S::kBlockM + row) * S::kPartialStride + column);
            l = fmaf(of_group.y, weight, l);
            sum[0] = fmaf(part.x, weight, sum[0]), sum[1] = fmaf(part.y, weight, sum[1]);
            sum[2] = fmaf(part.z, weight, sum[2]), sum[3] = fmaf(part.w, weight, sum[3]);
        }
        const float factor = 1.0f / l;
        *reinterpret_cast<uint2*>(o + static_cast<std::ptrdiff_t>(first_row) * S::D + i * 4) =
            make_uint2(pack<T>(sum[0] * factor, sum[1] * factor), pack<T>(sum[2] * factor, sum[3] * factor));
    }
}

// The warps that walk over the same keys.
template <typename S>
__device__ inline void meet_group(int group) {
    if constexpr (S::kWarpsM == 1) {
        __syncwarp();
    } else if constexpr (S::kWarpsN == 1) {
        __syncthreads();
    } else {
        ptx::barrier_sync(1 + group, S::kGroupThreads);
    }
}

// Grid: one block per query tile of each head. q, k, v, o: [heads, seq_len, D].
template <typename T, typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    forward(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o,
            const Task task) {
    constexpr int D = S::D;
    const unsigned worker = threadIdx.x % S::kGroupThreads, lane = threadIdx.x % 32;
    const int group = static_cast<int>(threadIdx.x / S::kGroupThreads), warp = static_cast<int>(worker / 32);

    const int block = static_cast<int>(blockIdx.x);
    const int band = task.by_band.quotient(block), before = band * task.heads_at_once;
    const int at = block - before * task.tiles, band_heads = min(task.heads_at_once, task.heads - before);
    const int row = (band_heads == task.heads_at_once ? task.by_heads : task.by_last_heads).quotient(at);
    const int head = before + at - row * band_heads, first_row = (task.tiles - 1 - row) * S::kBlockM;
    const std::size_t offset = static_cast<std::size_t>(head) * task.seq_len * D;
    q += offset, k += offset, v += offset, o += offset;

    ptx::wait_for_stream();
    unsigned char* shared = ptx::dynamic_shared();
    const Address q_tile = ptx::shared_address(shared);
    const Address ring = q_tile + S::kQBytes + group * (S::kStages * 2 * S::kTileBytes);
    const auto k_tile = [=](int tile) { return ring + static_cast<unsigned>(tile) % S::kStages * (2 * S::kTileBytes); };
    const auto v_tile = [=](int tile) { return k_tile(tile) + S::kTileBytes; };

    // Tiles of keys in all, and this group's.
    const int keys = task.causal ? min(task.seq_len, first_row + S::kBlockM) : task.seq_len;
    const int all = (keys + S::kBlockN - 1) / S::kBlockN;
    const int tiles = (all - group + S::kWarpsN - 1) / S::kWarpsN;
    const auto first_key = [=](int tile) { return (group + tile * S::kWarpsN) * S::kBlockN; };
    const auto fetch = [&](const T* matrix, Address to, int tile) {
        if (tile < tiles) stage<D, S::kBlockN, S::kGroupThreads>(to, matrix, first_key(tile), task.seq_len, worker);
        ptx::commit_copies();  // an empty group where there is no such tile: the waits count groups
    };

    stage<D, S::kBlockM, S::kThreads>(q_tile, q, first_row, task.seq_len, threadIdx.x);
    ptx::commit_copies();
#pragma unroll
    for (int tile = 0; tile < S::kStages; ++tile) {
        fetch(k, k_tile(tile), tile);
        fetch(v, v_tile(tile), tile);
    }
    ptx::wait_copies<2 * S::kStages>();
    __syncthreads();  // Q is in

    const int row_of_warp = warp * S::kRows;
    Warp<T, S> mine(task, lane, first_row + row_of_warp, q_tile + row_of_warp * D * 2);
    mine.keep_q();
    for (int tile = 0; tile < tiles; ++tile) {
        // Some row of this warp sees a key of this tile. If not, it still comes to the barriers.
        const bool seen = !task.causal || first_key(tile) < mine.first_row + S::kRows;
        if (tile == 0)
            ptx::wait_copies<2 * S::kStages - 1>();
        else
            ptx::wait_copies<2 * S::kStages - 2>();
        meet_group<S>(group);  // K is in, and the V before it is used up
        if (tile > 0) fetch(v, v_tile(tile - 1), tile - 1 + S::kStages);
        if (seen) {
            mine.score(k_tile(tile));
            mine.mask(first_key(tile));
            mine.weigh();
        }
        ptx::wait_copies<2 * S::kStages - 2>();
        meet_group<S>(group);  // V is in, and this K is used up
        fetch(k, k_tile(tile), tile + S::kStages);
        if (seen) mine.accumulate(v_tile(tile));
    }
    mine.finish();

    if constexpr (S::kWarpsN == 1) {
        mine.store(shared + row_of_warp * D * 2, o);
    } else {
        float* partials = reinterpret_cast<float*>(shared);
        float2* statistics = reinterpret_cast<float2*>(partials + S::kWarpsN * S::kBlockM * S::kPartialStride);
        __syncthreads();  // all groups are done with their tiles
        mine.leave(partials + group * S::kBlockM * S::kPartialStride, statistics + group * S::kBlockM, first_row);
        __syncthreads();  // all have left theirs
        merge<T, S>(partials, statistics, o, task, first_row);
    }
}

// K and V of so many bytes are in L2 together, whatever else is.
constexpr std::size_t kCacheBytes = 16 << 20;

template <typename T, typename S>
int launch(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,
           cudaStream_t stream) {
    const int heads = problem.batch * problem.heads, tiles = static_cast<int>(divide_up(problem.seq_len, S::kBlockM));
    const std::size_t head_bytes = static_cast<std::size_t>(problem.seq_len) * S::D * 2 * sizeof(T);
    const int at_once = !problem.causal ? 1 : static_cast<int>(std::max<std::size_t>(
        1, std::min<std::size_t>(static_cast<std::size_t>(heads), kCacheBytes / head_bytes)));
    using attention_family::Divisor;
    // A scale of zero is replaced by the smallest there is: the same weights, and -inf stays what it is.
    const Task task{problem.seq_len, heads, tiles, at_once,
                    Divisor(tiles * at_once), Divisor(at_once), Divisor((heads - 1) % at_once + 1),
                    problem.causal != 0, problem.scale < 0,
                    std::fmax(std::fabs(problem.scale) * attention_family::kLog2e, std::numeric_limits<float>::denorm_min())};
    return attention_family::launch<EARLY_LAUNCH>(&forward<T, S>, dim3(static_cast<unsigned>(tiles * heads)), S::kThreads,
                                                  S::kBytes, stream, static_cast<const T*>(q), static_cast<const T*>(k),
                                                  static_cast<const T*>(v), static_cast<T*>(o), task);
}

template <typename S>
const char* describe() {
    static char text[96];
    static const int length = std::snprintf(
        text, sizeof text, "mma BLOCK_M=%d BLOCK_N=%d WARPS_M=%d WARPS_N=%d STAGES=%d", S::kBlockM, S::kBlockN,
        S::kWarpsM, S::kWarpsN, S::kStages);
    return length > 0 ? text : "mma";
}

// Calls `use` with the setting for a problem: the tallest blocks of which there are enough for nearly every SM, for
// they read K and V the least often.
template <int D, typename Use>
auto choose(const attention_problem& problem, Use use) {
    if constexpr (kFixed<D>) {
        (void)problem;
        return use(Fixed<D>());
    } else {
        const int shared = attention_family::device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
        const auto suits = [&](auto setting) {
            using S = decltype(setting);
            return attention_family::fills_the_device(problem, S::kBlockM) && S::kBytes <= shared;
        };
        if (suits(Default<D, 128>())) return use(Default<D, 128>());
        if (suits(Default<D, 64>())) return use(Default<D, 64>());
        if (suits(Default<D, 32>())) return use(Default<D, 32>());
        return use(Default<D, 16>());
    }
}

template <typename Use>
auto choose(const attention_problem& problem, Use use) {
    return problem.head_dim == 64 ? choose<64>(problem, use) : choose<128>(problem, use);
}

int forward(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,
            cudaStream_t stream) {
    return choose(problem, [&](auto setting) {
        using S = decltype(setting);
        return problem.dtype == ATTENTION_FP16 ? launch<__half, S>(problem, q, k, v, o, stream)
                                               : launch<__nv_bfloat16, S>(problem, q, k, v, o, stream);
    });
}

const char* choice(const attention_problem& problem) {
    return choose(problem, [](auto setting) { return describe<decltype(setting)>(); });
}

const char* tunables() { return ATTENTION_MMA_TUNABLES; }

}  // namespace attention_mma

ATTENTION_ENTRY int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v,
                                      void* o, void* stream) {
    const int refused = attention_family::check_problem(problem, q, k, v, o);
    return refused ? refused : attention_mma::forward(*problem, q, k, v, o, static_cast<cudaStream_t>(stream));
}
ATTENTION_ENTRY const char* attention_error_string(int code) { return attention_family::error_string(code); }
ATTENTION_ENTRY const char* attention_tunables(void) { return attention_mma::tunables(); }
ATTENTION_ENTRY const char* attention_choice(const attention_problem* problem) { return attention_mma::choice(*problem); }
