// Attention forward for Hopper (sm_90a): bulk tensor copies, one warpgroup that loads and others that compute, wgmma.
//
// IDEA. A tile is 64 query rows of one head for each of CONSUMERS warpgroups. One thread of the last warpgroup asks the
// copy engine for the tile's Q and then, through rings of STAGES buffers, for tiles of BLOCK_N keys and values;
// barriers in shared memory (mbarrier) say when a buffer is full and when it has been used. The other warpgroups multiply
// Q K^T out of shared memory, keep scores and outputs in registers, compute the online softmax there in fp32, and
// multiply its 16-bit weights, still in registers, with V.
//   The pipeline and the warpgroups taking turns: Shah et al., "FlashAttention-3", 2024, arXiv:2407.08608. Online
//   softmax and the order of loops: see attention_scalar.cu.
//
// TIME OF A KEY TILE, for one warpgroup; products run on the tensor cores while the line below them is computed:
//   products   | Q K(i)^T, weights(i-1) V(i-1) | of the others         | Q K(i+1)^T, ...
//   softmax    | waits for the scores          | exponentials of tile i, outputs rescaled, weights(i) rounded |
// With PINGPONG warpgroups issue their products in a ring, by named barriers, so that one computes exponentials while
// another's products run. The assembler puts the wait for weights(i-1) V(i-1) in front of the exponentials, which do
// not need it. Rightly: forced behind them, a call took 1 to 2% (D = 64) or 7 to 8% (D = 128) longer.
//   Key tiles go from the last to the first: the masked ones, at the end of a causal row or of the sequence, come
// first, and the loop over all others has no mask in it.
//
// TWO HEIGHTS. The taller a tile, the less often K and V are read: 192 rows for D = 64, 128 for D = 128. Where that
// gives fewer than 7 in 8 multiprocessors a tile, tiles have 64 rows, and two blocks share a multiprocessor.
//
// WHO COMPUTES WHAT. PERSISTENT: one block a multiprocessor (two where CONSUMERS is 1) goes through tiles in steps of
// the grid; K and Q of its next tile are loaded while the last one is finished. Causal tiles are taken in pairs of
// equal work (find_task). Where pairs do not divide well among the blocks, each tile is a block, the heaviest of a
// head first.
//
// ROWS PAST THE END are zeros: a tensor map is of [heads, seq_len, D], so a box never reads the next head. Keys past
// the end are masked, rows past it are not stored.
//
// SHARED MEMORY, bytes: Q BLOCK_M x D x 2, K and V 2 x STAGES x BLOCK_N x D x 2, barriers 8 each. REGISTERS of a
// consumer's thread: BLOCK_N / 2 scores, BLOCK_N / 4 for the weights of the tile before, D / 2 outputs, and the rest.
// By default, with 2 stages:
//   D = 64   BLOCK_M 192  BLOCK_N 128   24,576 + 65,536 + 80 = 90,192     128 of 160 registers   starts with 128
//   D = 64   BLOCK_M 64   BLOCK_N 128   8,192 + 65,536 + 80 = 73,808      128 of 232                         128
//   D = 128  BLOCK_M 128  BLOCK_N 128   32,768 + 131,072 + 80 = 163,920   160 of 240                         168
//   D = 128  BLOCK_M 64   BLOCK_N 64    16,384 + 65,536 + 80 = 82,000     112 of 232                         128
// All threads start alike, and setmaxnreg moves registers to those that compute. Compiled by nvcc 12.4 and 13.0 alike,
// nothing spills and no wgmma waits for another (no warning C75xx).
//
// ACCURACY. Scores, sums and outputs in fp32; weights, at most 1, rounded to the tensors' type before they meet V.
//
// MEASURED on one H200, nvcc 13.0, PyTorch 2.11.0+cu130: medians of replays of a CUDA graph, beside the fastest SDPA
// backend, which was cuDNN in each row. B4 H16 S4096, fp16 where nothing else is said (benchmarks/kernels.py):
//   D = 128           817 us   673 TFLOP/s   0.94 of cuDNN's time
//   D = 128 causal    437 us   629 TFLOP/s   0.80
//   D = 128 bf16      787 us   698 TFLOP/s   0.92
//   D = 64            521 us   527 TFLOP/s   0.88
//   D = 64 causal     327 us   421 TFLOP/s   0.97
// Times of the large ones moved by up to 5% from run to run with the GPU's power, ratios to cuDNN by 2%. Beside that:
//   B1 H8 S1023 D = 64 in tiles of 64 rows takes 8.9 us, 0.59 of cuDNN's time; in tiles of 128 rows it took 12.7 us
//   PERSISTENT=0 takes 4% longer (D = 128), causal 11%; PINGPONG=0 5% longer at D = 64; 1% less at D = 128, causal 2% more
// Tried, and left out because it took up to 8% longer: outputs multiplied only in warps where a row's maximum rose, or rose
// by a factor of 2^8; the branch costs more than the products.
// Right, the same bits each time, and memcheck, initcheck, synccheck and racecheck are silent (attention_check.cu).
#include "attention_wgmma.h"

#include "attention_family.h"
#include "ptx_hopper.cuh"
#include "tensor_map.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace attention_wgmma {

// Where the tiles lie in shared memory. Each is D / 64 panels of 64 columns, one after another: see ptx_hopper.cuh.
template <typename S>
struct Shared {
    unsigned char q[S::kQueryBytes];
    unsigned char k[S::kStages][S::kKeyBytes];
    unsigned char v[S::kStages][S::kKeyBytes];
    ptx::Barrier q_filled, q_used, k_filled[S::kStages], k_used[S::kStages], v_filled[S::kStages], v_used[S::kStages];
};

struct Shape {
    int heads, seq_len, tiles, pairs;  // heads of all batch entries; query tiles of a head, and pairs of them
    attention_family::Divisor by_tiles, by_pairs;
    bool folded;                // causal: a block takes a tile from the end and one from the start of a head in turn
    float scale_log2;           // on scores, so that 2 to their power is the exponential
};

// One query tile of one head.
struct Task {
    int head, tile;
};

// The n-th tile of this block. False: there is none.
//
// Causal tiles differ in work, so a block takes those of a head in pairs, the last one with the first: all pairs are
// worth the same. Otherwise each gets its own block, and those of a head with most keys start first.
template <bool CAUSAL>
__device__ inline bool find_task(int n, const Shape& shape, Task& task) {
    if (CAUSAL && shape.folded) {
        const int pair = blockIdx.x + n / 2 * gridDim.x;
        task.head = shape.by_pairs.quotient(pair);
        const int at = pair - task.head * shape.pairs;
        task.tile = n % 2 ? at : shape.tiles - 1 - at;
        return task.head < shape.heads;
    }
    const int index = blockIdx.x + n * gridDim.x;
    task.head = shape.by_tiles.quotient(index);
    const int at = index - task.head * shape.tiles;
    task.tile = CAUSAL ? shape.tiles - 1 - at : at;
    return task.head < shape.heads;
}

// The middle one of an odd number of tiles is its own pair, and is taken once.
__device__ inline bool taken_before(int n, const Shape& shape, const Task& task) {
    return shape.folded && n % 2 && 2 * task.tile + 1 == shape.tiles;
}

// Key tiles that a query tile sees, the last ones of them with keys that some row does not see.
struct Span {
    int tiles, full;  // all; those that every row sees whole
};

template <typename S, bool CAUSAL>
__device__ inline Span span_of(const Task& task, int seq_len) {
    const int first_row = task.tile * S::kBlockM;
    const int most = CAUSAL ? min(seq_len, first_row + S::kBlockM) : seq_len;
    const int least = CAUSAL ? min(seq_len, first_row + 1) : seq_len;
    return {(most + S::kBlockN - 1) / S::kBlockN, least / S::kBlockN};
}

// A place in a ring of stages: which one, and the parity of its barriers' phase.
template <int STAGES>
struct Place {
    int stage = 0, parity = 0;
    __device__ void advance() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

__device__ inline void wait(ptx::Barrier& barrier, int parity) {
    while (!ptx::mbarrier_try_wait_parity(&barrier, parity)) {
    }
}

// `rows` rows of a head, D columns, panel by panel. Rows past the end are filled with zeros.
template <int D>
__device__ inline void load_tile(unsigned char* to, const ptx::TensorMap& map, ptx::Barrier& filled, int rows,
                                 int first_row, int head) {
    ptx::mbarrier_arrive_expect_tx(&filled, rows * D * 2);
    for (int panel = 0; panel < D / ptx::kPanelColumns; ++panel)
        ptx::load_box(to + panel * rows * ptx::kRowBytes, &map, &filled, panel * ptx::kPanelColumns, first_row, head);
}

// One thread: loads what the consumers will ask for, in their order.
template <typename S, bool CAUSAL>
__device__ inline void produce(Shared<S>& shared, const ptx::TensorMap& q_map, const ptx::TensorMap& k_map,
                               const ptx::TensorMap& v_map, const Shape& shape) {
    for (const ptx::TensorMap* map : {&q_map, &k_map, &v_map}) ptx::prefetch(map);
    Place<S::kStages> k, v;
    int q_parity = 0;
    Task task;
    for (int n = 0; find_task<CAUSAL>(n, shape, task); ++n) {
        if (taken_before(n, shape, task)) continue;
        const int tiles = span_of<S, CAUSAL>(task, shape.seq_len).tiles;
        for (int i = 0; i <= tiles; ++i) {  // from the last key tile to the first, values one behind
            if (i < tiles) {
                wait(shared.k_used[k.stage], k.parity ^ 1);
                load_tile<S::D>(shared.k[k.stage], k_map, shared.k_filled[k.stage], S::kBlockN,
                             (tiles - 1 - i) * S::kBlockN, task.head);
                k.advance();
            }
            if (i == 0) {
                wait(shared.q_used, q_parity ^ 1);
                load_tile<S::D>(shared.q, q_map, shared.q_filled, S::kBlockM, task.tile * S::kBlockM, task.head);
                q_parity ^= 1;
            } else {
                wait(shared.v_used[v.stage], v.parity ^ 1);
                load_tile<S::D>(shared.v[v.stage], v_map, shared.v_filled[v.stage], S::kBlockN, (tiles - i) * S::kBlockN,
                             task.head);
                v.advance();
            }
        }
    }
}

// Element i of an accumulator of 64 rows, as a thread holds it, lies in row 16 * warp + lane / 4 + 8 * row_of(i) and
// column 2 * (lane % 4) + 8 * (i / 4) + i % 2. PTX ISA, "Register fragments", wgmma.m64nNk16, D.
__host__ __device__ constexpr int row_of(int i) { return i / 2 % 2; }

// What is known of a thread's two rows: the largest score, unscaled, and the sum of this thread's exponentials.
struct Rows {
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
};

// Scores of keys that a row does not see become -inf. end[h]: keys that row h sees, counted from this thread's first.
template <int COUNT>
__device__ inline void mask(float (&scores)[COUNT], const int (&end)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        if (i / 4 * 8 + i % 2 >= end[row_of(i)]) scores[i] = -INFINITY;
}

// Scores become 2^(scale * (score - top)), with the tops raised to theirs; shrink: what sums so far are multiplied by.
// MASKED: a row may not have seen any key yet, and -inf - -inf must not be computed.
template <bool MASKED, int COUNT>
__device__ inline void exponentials(float (&scores)[COUNT], Rows& rows, float (&shrink)[2], float scale_log2) {
    float top[2][2];  // of even and odd columns: shorter chains
#pragma unroll
    for (int h = 0; h < 2; ++h) top[h][0] = fmaxf(rows.top[h], scores[2 * h]), top[h][1] = scores[2 * h + 1];
#pragma unroll
    for (int i = 4; i < COUNT; ++i) top[row_of(i)][i % 2] = fmaxf(top[row_of(i)][i % 2], scores[i]);
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float raised = fmaxf(top[h][0], top[h][1]);  // over the four lanes that share a row
        raised = fmaxf(raised, __shfl_xor_sync(0xffffffffu, raised, 1));
        raised = fmaxf(raised, __shfl_xor_sync(0xffffffffu, raised, 2));
        base[h] = MASKED && raised == -INFINITY ? 0.0f : raised * scale_log2;
        shrink[h] = ptx::exp2_approximate(rows.top[h] * scale_log2 - base[h]);
        rows.top[h] = raised;
        rows.sum[h] *= shrink[h];
    }
    float sum[2][2] = {};
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        scores[i] = ptx::exp2_approximate(fmaf(scores[i], scale_log2, -base[row_of(i)]));
        sum[row_of(i)][i % 2] += scores[i];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) rows.sum[h] += sum[h][0] + sum[h][1];
}

template <int COUNT>
__device__ inline void rescale(float (&outputs)[COUNT], const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) outputs[i] *= shrink[row_of(i)];
}

// Four lanes hold a row's 32 columns in pairs, lane by lane within each 8: afterwards each lane holds 8 in a row.
__device__ inline void gather(std::uint32_t (&pairs)[4], int lane) {
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & bit) continue;
            const bool upper = lane & bit;
            const std::uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? pairs[i] : pairs[i + bit], bit);
            (upper ? pairs[i] : pairs[i + bit]) = other;
        }
}

// A warpgroup of consumers: 64 rows of each tile.
template <typename T, typename S, bool CAUSAL>
class Consumer {
    static constexpr int D = S::D, kScores = S::kBlockN / 2, kOutputs = D / 2;  // of a thread
    static constexpr bool kTurns = PINGPONG && S::kConsumers > 1;

public:
    __device__ Consumer(Shared<S>& shared, const Shape& shape, int warpgroup)
        : shared_(shared),
          shape_(shape),
          warpgroup_(warpgroup),
          lane_(threadIdx.x % 32),
          row_(warpgroup * kRowsOfWarpgroup + threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4),
          q_(ptx::descriptor(ptx::shared_address(shared.q) + warpgroup * kRowsOfWarpgroup * ptx::kRowBytes, 0)),
          k_(ptx::descriptor(ptx::shared_address(shared.k), 0)),
          v_(ptx::descriptor(ptx::shared_address(shared.v), S::kBlockN * ptx::kRowBytes)) {}

    __device__ __forceinline__ void run(T* __restrict__ o) {
        if (kTurns && warpgroup_ == S::kConsumers - 1) pass_turn();
        int q_parity = 0;
        Task task;
        for (int n = 0; find_task<CAUSAL>(n, shape_, task); ++n) {
            if (taken_before(n, shape_, task)) continue;
            const Span span = span_of<S, CAUSAL>(task, shape_.seq_len);
            float outputs[kOutputs] = {};
            std::uint32_t weights[kScores / 2];
            Rows rows;
            wait(shared_.q_filled, q_parity);
            q_parity ^= 1;
            int tile = span.tiles - 1;
            start(task, tile, tile >= span.full, weights, rows);
            --tile;
            if (CAUSAL)
                for (; tile >= span.full; --tile) step<true>(task, tile, weights, outputs, rows);
            for (; tile >= 0; --tile) step<false>(task, tile, weights, outputs, rows);
            release(shared_.q_used);
            finish(weights, outputs);
            store(o, task, outputs, rows);
        }
        if (kTurns && warpgroup_ == 0) wait_turn();  // the one that nobody needed
    }

private:
    Shared<S>& shared_;
    const Shape& shape_;
    const int warpgroup_, lane_, row_;  // row_: the first of this thread's rows, in the tile
    const std::uint64_t q_, k_, v_;
    Place<S::kStages> at_;  // of the last keys multiplied

    // The first key tile: nothing to overlap it with.
    __device__ __forceinline__ void start(const Task& task, int tile, bool masked,
                                          std::uint32_t (&weights)[kScores / 2], Rows& rows) {
        float scores[kScores], shrink[2];
        wait(shared_.k_filled[at_.stage], at_.parity);
        multiply_keys(scores);
        ptx::wgmma_wait_group<0>(scores);
        release(shared_.k_used[at_.stage]);
        if (masked) mask_tile(task, tile, scores);
        exponentials<true>(scores, rows, shrink, shape_.scale_log2);
        round(scores, weights);
    }

    // One key tile more: its scores and the outputs of the tile before are computed side by side, and the softmax
    // follows as soon as the scores are there.
    template <bool MASKED>
    __device__ __forceinline__ void step(const Task& task, int tile, std::uint32_t (&weights)[kScores / 2],
                                         float (&outputs)[kOutputs], Rows& rows) {
        float scores[kScores], shrink[2];
        const Place<S::kStages> before = at_;
        at_.advance();
        wait(shared_.k_filled[at_.stage], at_.parity);
        if (kTurns) wait_turn();
        multiply_keys(scores);
        wait(shared_.v_filled[before.stage], before.parity);
        multiply_values(before.stage, weights, outputs);
        if (kTurns) pass_turn();
        ptx::wgmma_wait_group<1>(scores);
        release(shared_.k_used[at_.stage]);
        if (MASKED) mask_tile(task, tile, scores);
        exponentials<MASKED>(scores, rows, shrink, shape_.scale_log2);
        ptx::wgmma_wait_group<0>(outputs);
        release(shared_.v_used[before.stage]);
        rescale(outputs, shrink);
        round(scores, weights);
    }

    __device__ __forceinline__ void finish(const std::uint32_t (&weights)[kScores / 2], float (&outputs)[kOutputs]) {
        wait(shared_.v_filled[at_.stage], at_.parity);
        multiply_values(at_.stage, weights, outputs);
        ptx::wgmma_wait_group<0>(outputs);
        release(shared_.v_used[at_.stage]);
        at_.advance();
    }

    __device__ __forceinline__ void multiply_keys(float (&scores)[kScores]) {
        const std::uint64_t keys = ptx::advanced(k_, at_.stage * S::kKeyBytes);
        ptx::wgmma_fence();
#pragma unroll
        for (int column = 0; column < D; column += 16) {
            const int panel = column / ptx::kPanelColumns, within = column % ptx::kPanelColumns * 2;
            ptx::wgmma<T>(scores, ptx::advanced(q_, panel * S::kBlockM * ptx::kRowBytes + within),
                          ptx::advanced(keys, panel * S::kBlockN * ptx::kRowBytes + within), column > 0);
        }
        ptx::wgmma_commit_group();
    }

    __device__ __forceinline__ void multiply_values(int stage, const std::uint32_t (&weights)[kScores / 2],
                                                    float (&outputs)[kOutputs]) {
        const std::uint64_t values = ptx::advanced(v_, stage * S::kKeyBytes);
        ptx::wgmma_fence();
#pragma unroll
        for (int key = 0; key < S::kBlockN; key += 16)
            ptx::wgmma<T>(outputs, weights + key / 4, ptx::advanced(values, key * ptx::kRowBytes), true);
        ptx::wgmma_commit_group();
    }

    __device__ __forceinline__ void mask_tile(const Task& task, int tile, float (&scores)[kScores]) {
        int end[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = task.tile * S::kBlockM + row_ + 8 * h;
            const int seen = CAUSAL ? min(shape_.seq_len, row + 1) : shape_.seq_len;
            end[h] = seen - tile * S::kBlockN - lane_ % 4 * 2;
        }
        mask(scores, end);
    }

    // Two neighbours of a row share a register: just what a product takes as its left side.
    __device__ __forceinline__ void round(const float (&scores)[kScores], std::uint32_t (&weights)[kScores / 2]) {
#pragma unroll
        for (int i = 0; i < kScores / 2; ++i) weights[i] = ptx::cvt_pair<T>(scores[2 * i], scores[2 * i + 1]);
    }

    // Every warp tells for itself that it is done with a stage: its wait speaks for no other warp.
    __device__ __forceinline__ void release(ptx::Barrier& used) {
        if (lane_ == 0) ptx::mbarrier_arrive(&used);
    }

    // Named barriers, one a warpgroup: those who wait are it and the one before it. 0 is __syncthreads'.
    __device__ __forceinline__ void wait_turn() { ptx::barrier_sync(1 + warpgroup_, 2 * kWarpgroup); }
    __device__ __forceinline__ void pass_turn() {
        ptx::barrier_arrive(1 + (warpgroup_ + 1) % S::kConsumers, 2 * kWarpgroup);
    }

    // Eight elements in a row, 16 bytes, by each lane; four lanes fill two sectors.
    __device__ __forceinline__ void store(T* __restrict__ o, const Task& task, const float (&outputs)[kOutputs],
                                          const Rows& rows) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float sum = rows.sum[h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const float inverse = ptx::reciprocal_approximate(sum);
            const int row = task.tile * S::kBlockM + row_ + 8 * h;
            T* at = o + (static_cast<std::size_t>(task.head) * shape_.seq_len + row) * D + lane_ % 4 * 8;
#pragma unroll
            for (int column = 0; column < D; column += 32) {
                std::uint32_t pairs[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int first = column / 2 + 4 * i + 2 * h;
                    pairs[i] = ptx::cvt_pair<T>(outputs[first] * inverse, outputs[first + 1] * inverse);
                }
                gather(pairs, lane_);
                if (row < shape_.seq_len)
                    *reinterpret_cast<uint4*>(at + column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
            }
        }
    }
};

// What has wgmma is the sm_90a pass of the compiler. Any other leaves a kernel that no launch here fits, and by which
// the host sees that this device has none.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ATTENTION_WGMMA_BOUNDS(S) __launch_bounds__(32)
#else
#define ATTENTION_WGMMA_BOUNDS(S) __launch_bounds__(S::kThreads, S::kBlocksPerSm)
#endif

// Grid: any number of blocks; they share the tiles out among themselves. o: [heads, seq_len, D].
template <typename T, typename S, bool CAUSAL>
__global__ void ATTENTION_WGMMA_BOUNDS(S)
    forward_kernel(const __grid_constant__ ptx::TensorMap q, const __grid_constant__ ptx::TensorMap k,
                   const __grid_constant__ ptx::TensorMap v, T* __restrict__ o, const Shape shape) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    static_assert(sizeof(Shared<S>) == S::kSharedBytes, "the tiles lie one after another");
    Shared<S>& shared = *reinterpret_cast<Shared<S>*>(ptx::dynamic_shared());
    constexpr int kWarps = S::kConsumers * kWarpgroup / 32;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&shared.q_filled, 1);
        ptx::mbarrier_init(&shared.q_used, kWarps);
        for (int stage = 0; stage < S::kStages; ++stage) {
            ptx::mbarrier_init(&shared.k_filled[stage], 1);
            ptx::mbarrier_init(&shared.v_filled[stage], 1);
            ptx::mbarrier_init(&shared.k_used[stage], kWarps);
            ptx::mbarrier_init(&shared.v_used[stage], kWarps);
        }
        ptx::fence_mbarrier_init();
    }
    ptx::wait_for_stream();
    __syncthreads();
    // By a shuffle: the compiler then knows that it is the same for a whole warp.
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
    if (warpgroup == S::kConsumers) {
        ptx::setmaxnreg_dec<S::kProducerRegisters>();
        if (threadIdx.x % kWarpgroup == 0) produce<S, CAUSAL>(shared, q, k, v, shape);
    } else {
        ptx::setmaxnreg_inc<S::kConsumerRegisters>();
        Consumer<T, S, CAUSAL>(shared, shape, warpgroup).run(o);
    }
#endif
}

// Whether the library has this kernel for the current device.
template <typename Kernel>
bool has_code(Kernel kernel, int threads) {
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) return attributes.maxThreadsPerBlock >= threads;
    cudaGetLastError();
    return false;
}

// Left to attention_mma: devices without wgmma, and scales that are not positive, where the largest score before
// scaling is not the largest one after it, or that are too small for a normal number.
bool takes(const attention_problem& problem) {
    const float scale_log2 = problem.scale * attention_family::kLog2e;
    return scale_log2 > 0.0f && std::isnormal(scale_log2) &&
           has_code(&forward_kernel<__half, Settings<64>::Tall, false>, Settings<64>::Tall::kThreads);
}

template <typename T, typename S, bool CAUSAL>
int launch(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,
           cudaStream_t stream) {
    const int heads = problem.batch * problem.heads;
    const int blocks = S::kBlocksPerSm * attention_family::device_attribute(cudaDevAttrMultiProcessorCount);
    const int tiles = static_cast<int>(attention_family::divide_up(problem.seq_len, S::kBlockM)), half = (tiles + 1) / 2;
    Shape shape{heads, problem.seq_len, tiles, half, attention_family::Divisor(tiles), attention_family::Divisor(half),
                false, problem.scale * attention_family::kLog2e};
    int grid = heads * tiles;
    if (PERSISTENT && CAUSAL) {
        // Blocks that all take as many pairs; where a twentieth of them would have none in the last round, the
        // hardware does better at dealing out tiles.
        const std::int64_t pairs = std::int64_t{heads} * half;
        shape.folded = pairs * 20 >= attention_family::divide_up(pairs, std::max(blocks, 1)) * blocks * 19;
        if (shape.folded) grid = blocks;
    } else if (PERSISTENT && grid > blocks) {
        grid = blocks;
    }

    ptx::TensorMap maps[3];
    const void* tensors[3] = {q, k, v};
    const int rows[3] = {S::kBlockM, S::kBlockN, S::kBlockN};
    for (int i = 0; i < 3; ++i)
        if (!tensor_map::encode<T>(maps[i], tensors[i], heads, problem.seq_len, S::D, rows[i]))
            return attention_mma::forward(problem, q, k, v, o, stream);
    return attention_family::launch<EARLY_LAUNCH>(&forward_kernel<T, S, CAUSAL>, dim3(static_cast<unsigned>(grid)),
                                                  S::kThreads, S::kSharedBytes, stream, maps[0], maps[1], maps[2],
                                                  static_cast<T*>(o), shape);
}

// Calls `use` with the setting for a problem.
template <typename Use>
auto choose(const attention_problem& problem, Use use) {
    const auto by_height = [&](auto settings) {
        using Of = decltype(settings);
        const bool tall = attention_family::fills_the_device(problem, Of::Tall::kBlockM);
        return tall ? use(typename Of::Tall()) : use(typename Of::Low());
    };
    return problem.head_dim == 64 ? by_height(Settings<64>()) : by_height(Settings<128>());
}

int forward(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,
            cudaStream_t stream) {
    if (!takes(problem)) return attention_mma::forward(problem, q, k, v, o, stream);
    return choose(problem, [&](auto setting) {
        using S = decltype(setting);
        const bool half = problem.dtype == ATTENTION_FP16;
        const auto run = half ? problem.causal ? &launch<__half, S, true> : &launch<__half, S, false>
                         : problem.causal ? &launch<__nv_bfloat16, S, true>
                                          : &launch<__nv_bfloat16, S, false>;
        return run(problem, q, k, v, o, stream);
    });
}

template <typename S>
const char* describe() {
    static char text[64];
    static const int length = std::snprintf(text, sizeof text, "wgmma BLOCK_M=%d BLOCK_N=%d STAGES=%d", S::kBlockM,
                                            S::kBlockN, S::kStages);
    return length > 0 ? text : "wgmma";
}

const char* choice(const attention_problem& problem) {
    if (!takes(problem)) return attention_mma::choice(problem);
    return choose(problem, [](auto setting) { return describe<decltype(setting)>(); });
}

const char* tunables() { return ATTENTION_WGMMA_TUNABLES; }

}  // namespace attention_wgmma

ATTENTION_ENTRY int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v,
                                      void* o, void* stream) {
    const int refused = attention_family::check_problem(problem, q, k, v, o);
    if (refused) return refused;
    return attention_wgmma::forward(*problem, q, k, v, o, static_cast<cudaStream_t>(stream));
}

ATTENTION_ENTRY const char* attention_error_string(int code) { return attention_family::error_string(code); }
ATTENTION_ENTRY const char* attention_tunables(void) { return attention_wgmma::tunables(); }
ATTENTION_ENTRY const char* attention_choice(const attention_problem* problem) {
    return attention_wgmma::choice(*problem);
}
