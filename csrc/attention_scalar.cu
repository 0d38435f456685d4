// Attention forward on CUDA cores: no tensor cores, nothing asynchronous, every step readable.
//
// IDEA. One block computes BLOCK_M query rows of one head. It walks over the keys in tiles of kBlockN and
// keeps, for each row, the largest score so far (m), the sum of exp(score - m) (l) and the unnormalised
// output (o). When a tile raises m, l and o shrink by exp(m_old - m_new); at the end o / l is the result. The
// scores of a row are never all in memory at once.
//   Online softmax: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018,
//   arXiv:1805.02867.
//   Tiling: Dao et al., "FlashAttention", 2022, arXiv:2205.14135, with the loops as in "FlashAttention-2",
//   2023, arXiv:2307.08691 (query rows outside, o divided by l once).
//
// NUMBERS. Tensors are fp16, bf16 or fp32; tiles, scores and sums are fp32. Scores are scaled by
// scale * log2(e), so that exp2f, the hardware's own, is the exponential.
//
// SYNC_POLICY is the number of block barriers per key tile. Each is its own structure, with none to spare:
//   0  A warp owns kRows query rows and shares nothing: it stages K in a slice of its own, kSlice of the head
//      dimension at a time, and reads V from global memory. Each warp loads all of K: caches must help.
//   2  A warp owns kRows query rows; the block shares a K and a V tile. Barriers: tiles filled, tiles used.
//   5  Work is dealt anew in each phase, whoever owns the row: K in, scores, row maxima with V in,
//      exponentials, output. K and V share one buffer: less shared memory. A barrier ends each phase.
//
// SHARED MEMORY, in floats, with D = head_dim and N = 4096 / D; "+ VEC_WIDTH" pads rows, so that lanes that
// read the same column of different rows meet different banks. All: Q tile BLOCK_M x (D + VEC_WIDTH), scores
// BLOCK_M x (N + VEC_WIDTH), statistics 3 x BLOCK_M. And for SYNC_POLICY
//   0  K slices NUM_WARPS x N x (kSlice + VEC_WIDTH)
//   2  K tile N x (D + VEC_WIDTH), V tile N x D
//   5  one tile N x (D + VEC_WIDTH)
//
// REGISTERS. A thread holds kRows x (N / 32) scores and kRows x (D / 32) outputs; in policy 5 half as many
// rows, twice as wide.
// Compiled by nvcc 12.4 and 13.0 alike, the seed takes 96 registers (head_dim 128 on sm_80 and sm_89: 94),
// spills nothing, and has 51,584 bytes of shared memory for head_dim 64 and 55,168 for 128. Over all 108
// settings (both compilers, sm_90) the most are 254 registers and 77,056 bytes, and none spills.
//
// MEASURED on one H200 (sm_90), driver 580.159.04, nvcc 13.0, PyTorch 2.11.0+cu130. On normal deviates all
// 108 settings stay within 2^-11 (fp16), 2^-8 (bf16) and 3e-6 (fp32) of a row's largest value from
// float64, plus 2e-6 for the half types, and give the same bits whatever shared memory held before.
// racecheck is silent on the seed, and finds a hazard once any one block barrier of policy 2 or 5 is taken
// out.
#include "attention_scalar.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>

// Not anonymous: names in an anonymous namespace carry a hash of the source's path into the disassembly.
namespace attention_scalar {

constexpr int kThreads = 32 * NUM_WARPS;
// Blocks an SM should hold, for the register budget. Unasked the compiler aims for four, and the seed spills;
// with eight rows a warp and eight warps even two makes it spill.
constexpr int kBlocksPerSm = BLOCK_M == 64 && NUM_WARPS == 8 ? 1 : 2;
constexpr int kSlice = 16;
constexpr float kLog2e = 1.44269504088896340736f;
constexpr std::size_t kSharedLimit = 99 * 1024;  // a block's most on sm_89, the least of the targets

// Conversions by name: PyTorch's builds switch off the operators of __half and __nv_bfloat16.
__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void from_float(float& to, float x) { to = x; }
__device__ inline void from_float(__half& to, float x) { to = __float2half_rn(x); }
__device__ inline void from_float(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

// N elements that move in one instruction.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

template <int N, typename T>
__device__ inline Pack<float, N> load(const T* from) {
    const Pack<T, N> raw = *reinterpret_cast<const Pack<T, N>*>(from);
    Pack<float, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = to_float(raw.at[i]);
    return pack;
}

template <int N>
__device__ inline Pack<float, N> zeros() {
    Pack<float, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = 0.0f;
    return pack;
}

// EXTRA_STEPS instructions for each element on its way into a tile change nothing but the time. Each such
// element meets BLOCK_M multiplications later, so the share hardly depends on the shape. For the control that
// asks which slowdown a comparison of environments finds, and measures the true one beside it; 0 otherwise.
#ifndef EXTRA_STEPS
#define EXTRA_STEPS 0
#endif
#if EXTRA_STEPS
template <int N>
__device__ inline void spend(Pack<float, N>& pack) {
#pragma unroll
    for (int step = 0; step < EXTRA_STEPS; ++step)
#pragma unroll
        for (int i = 0; i < N; ++i)  // x * 1 + -0 is x, for zeros of both signs too
            asm volatile("fma.rn.f32 %0, %0, 0f3F800000, 0f80000000;" : "+f"(pack.at[i]));
}
#endif

// Copies ROWS x COLS elements of matrix [seq_len, D], from (first_row, first_col) on, to tile as fp32. Rows
// past the end become zeros, not leftovers: zero weight times a leftover NaN would be NaN. Done by threads
// worker, worker + WORKERS, ... of a team of WORKERS.
template <int D, int ROWS, int COLS, int STRIDE, int WORKERS, typename T>
__device__ inline void stage(float* tile, const T* matrix, int first_row, int first_col, int seq_len,
                             int worker) {
    constexpr int kPacks = COLS / VEC_WIDTH;
#pragma unroll 4
    for (int i = worker; i < ROWS * kPacks; i += WORKERS) {
        const int row = i / kPacks, col = i % kPacks * VEC_WIDTH;
        Pack<float, VEC_WIDTH> pack = zeros<VEC_WIDTH>();
        if (first_row + row < seq_len)
            pack = load<VEC_WIDTH>(matrix + static_cast<std::size_t>(first_row + row) * D + first_col + col);
#if EXTRA_STEPS
        spend(pack);
#endif
        *reinterpret_cast<Pack<float, VEC_WIDTH>*>(tile + row * STRIDE + col) = pack;
    }
}

// scores[r][c] += q[row r] . k[key c] over DEPTH dimensions, for rows ROW_STEP and keys KEY_STEP apart.
template <int DEPTH, int ROW_STEP, int KEY_STEP, int Q_STRIDE, int K_STRIDE, int ROWS, int KEYS>
__device__ inline void add_scores(float (&scores)[ROWS][KEYS], const float* q, const float* k) {
#pragma unroll 2
    for (int d = 0; d < DEPTH; d += VEC_WIDTH) {
        Pack<float, VEC_WIDTH> key[KEYS];
#pragma unroll
        for (int c = 0; c < KEYS; ++c) key[c] = load<VEC_WIDTH>(k + c * KEY_STEP * K_STRIDE + d);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const Pack<float, VEC_WIDTH> row = load<VEC_WIDTH>(q + r * ROW_STEP * Q_STRIDE + d);
#pragma unroll
            for (int c = 0; c < KEYS; ++c)
#pragma unroll
                for (int i = 0; i < VEC_WIDTH; ++i)
                    scores[r][c] = fmaf(row.at[i], key[c].at[i], scores[r][c]);
        }
    }
}

// Columns of o that one of LANES threads holds: groups of kGroup neighbours, LANES * kGroup apart.
template <int D, int LANES>
struct Columns {
    static constexpr int kCount = D / LANES;
    static constexpr int kGroup = kCount < VEC_WIDTH ? kCount : VEC_WIDTH;
    static constexpr int kStep = LANES * kGroup;
};

// o[r][...] += sum over KEYS keys of p[row r][key] * v[key][columns of lane]. V has `present` rows; the
// others count as zeros and are not read.
template <int D, int LANES, int KEYS, int ROW_STEP, int P_STRIDE, int V_STRIDE, int ROWS, typename T>
__device__ inline void add_outputs(float (&o)[ROWS][D / LANES], const float* p, const T* v, int lane,
                                   int present) {
    using C = Columns<D, LANES>;
#pragma unroll 1
    for (int key = 0; key < KEYS; key += VEC_WIDTH) {
        Pack<float, C::kGroup> value[VEC_WIDTH][C::kCount / C::kGroup];
#pragma unroll
        for (int i = 0; i < VEC_WIDTH; ++i)
#pragma unroll
            for (int g = 0; g < C::kCount / C::kGroup; ++g)
                value[i][g] = key + i < present
                                  ? load<C::kGroup>(v + static_cast<std::size_t>(key + i) * V_STRIDE +
                                                    g * C::kStep + lane * C::kGroup)
                                  : zeros<C::kGroup>();
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const Pack<float, VEC_WIDTH> weight = load<VEC_WIDTH>(p + r * ROW_STEP * P_STRIDE + key);
#pragma unroll
            for (int i = 0; i < VEC_WIDTH; ++i)
#pragma unroll
                for (int c = 0; c < C::kCount; ++c)
                    o[r][c] = fmaf(weight.at[i], value[i][c / C::kGroup].at[c % C::kGroup], o[r][c]);
        }
    }
}

template <int D, int LANES, typename T>
__device__ inline void store_row(T* o, const float (&row)[D / LANES], float factor, int lane) {
    using C = Columns<D, LANES>;
#pragma unroll
    for (int g = 0; g < C::kCount / C::kGroup; ++g) {
        Pack<T, C::kGroup> pack;
#pragma unroll
        for (int i = 0; i < C::kGroup; ++i) from_float(pack.at[i], row[g * C::kGroup + i] * factor);
        *reinterpret_cast<Pack<T, C::kGroup>*>(o + g * C::kStep + lane * C::kGroup) = pack;
    }
}

struct Max {
    static __device__ float start() { return -INFINITY; }
    static __device__ float join(float a, float b) { return fmaxf(a, b); }  // passes over a NaN
};
struct Sum {
    static __device__ float start() { return 0.0f; }
    static __device__ float join(float a, float b) { return a + b; }
};

template <typename Op>
__device__ inline float join_lanes(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        x = Op::join(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

template <typename Op, int COUNT>
__device__ inline float join_serially(const float* row) {
    float x = Op::start();
    for (int i = 0; i < COUNT; ++i) x = Op::join(x, row[i]);
    return x;
}

// A key that the row must not see scores -inf, whatever the product was.
__device__ inline float masked(float product, int row, int key, int seq_len, bool causal, float scale_log2) {
    return key < seq_len && !(causal && key > row) ? product * scale_log2 : -INFINITY;
}

// What is subtracted before exp2f. A row that has seen -inf only must not compute -inf - -inf.
__device__ inline float base_of(float m) { return m == -INFINITY ? 0.0f : m; }

// Where the tiles lie in shared memory, in floats.
template <int D>
struct Layout {
    static constexpr int kQStride = D + VEC_WIDTH;
    static constexpr int kPStride = kBlockN<D> + VEC_WIDTH;
    static constexpr int kKStride = (SYNC_POLICY == 0 ? kSlice : D) + VEC_WIDTH;
    static constexpr int kScores = BLOCK_M * kQStride;
    static constexpr int kKeys = kScores + BLOCK_M * kPStride;
    static constexpr int kValues = kKeys + (SYNC_POLICY == 0 ? NUM_WARPS : 1) * kBlockN<D> * kKStride;
    static constexpr int kStatistics = kValues + (SYNC_POLICY == 2 ? kBlockN<D> * D : 0);
    static constexpr int kFloats = kStatistics + 3 * BLOCK_M;
    static_assert(kFloats * sizeof(float) <= kSharedLimit,
                  "the tiles leave the shared memory that sm_89 has");
};

extern __shared__ __align__(16) float shared[];

#if SYNC_POLICY != 5

// Op over each of a warp's score rows, to all its lanes. Lane holds keys lane, lane + 32, ...; strip has the
// same scores in shared memory, written by this warp alone.
template <typename Op, int STRIDE, int KEYS>
__device__ inline void reduce_rows(float (&result)[kRows], const float (&scores)[kRows][KEYS],
                                   const float* strip, float* statistics, int lane) {
#if REDUCE_WARP
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        float x = scores[r][0];
#pragma unroll
        for (int c = 1; c < KEYS; ++c) x = Op::join(x, scores[r][c]);
        result[r] = join_lanes<Op>(x);
    }
#else
    __syncwarp();  // the strip is complete
    if (lane < kRows) statistics[lane] = join_serially<Op, 32 * KEYS>(strip + lane * STRIDE);
    __syncwarp();  // the statistics are, and the strip may be overwritten
#pragma unroll
    for (int r = 0; r < kRows; ++r) result[r] = statistics[r];
#endif
}

template <int STRIDE, int KEYS>
__device__ inline void put_rows(float* strip, const float (&scores)[kRows][KEYS], int lane) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < KEYS; ++c) strip[r * STRIDE + lane + 32 * c] = scores[r][c];
}

// Grid: one block per query tile, heads in order. q, k, v, o: [heads in all, seq_len, D].
template <typename T, int D>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    forward(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o,
            int seq_len, int tiles, bool causal, float scale_log2) {
    using L = Layout<D>;
    constexpr int N = kBlockN<D>, kKeys = N / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const std::size_t head = static_cast<std::size_t>(blockIdx.x / tiles) * seq_len * D;
    const int block_row = static_cast<int>(blockIdx.x % tiles) * BLOCK_M;
    const int first_row = block_row + warp * kRows;
    q += head, k += head, v += head, o += head;

    float* q_rows = shared + warp * kRows * L::kQStride;              // this warp's alone
    float* strip = shared + L::kScores + warp * kRows * L::kPStride;  // this warp's alone
    float* statistics = shared + L::kStatistics + warp * kRows;       // this warp's alone
    float* k_tile = shared + L::kKeys + (SYNC_POLICY == 0 ? warp * N * L::kKStride : 0);
    stage<D, kRows, D, L::kQStride, 32>(q_rows, q, first_row, 0, seq_len, lane);
    __syncwarp();

    float m[kRows], l[kRows], out[kRows][D / 32];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        m[r] = -INFINITY, l[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < D / 32; ++c) out[r][c] = 0.0f;
    }

    // Warps that meet at barriers must leave the loop together; a warp on its own stops at its own rows.
    const int end_row = SYNC_POLICY == 0 ? first_row + kRows : block_row + BLOCK_M;
    const int keys = causal ? min(seq_len, end_row) : seq_len;
    for (int first_key = 0; first_key < keys; first_key += N) {
        float p[kRows][kKeys] = {};
#if SYNC_POLICY == 2
        float* v_tile = shared + L::kValues;
        stage<D, N, D, L::kKStride, kThreads>(k_tile, k, first_key, 0, seq_len, threadIdx.x);
        stage<D, N, D, D, kThreads>(v_tile, v, first_key, 0, seq_len, threadIdx.x);
        __syncthreads();  // both tiles are filled
        add_scores<D, 1, 32, L::kQStride, L::kKStride>(p, q_rows, k_tile + lane * L::kKStride);
#else
        for (int d = 0; d < D; d += kSlice) {
            stage<D, N, kSlice, L::kKStride, 32>(k_tile, k, first_key, d, seq_len, lane);
            __syncwarp();
            add_scores<kSlice, 1, 32, L::kQStride, L::kKStride>(p, q_rows + d, k_tile + lane * L::kKStride);
            __syncwarp();
        }
#endif
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int c = 0; c < kKeys; ++c)
                p[r][c] =
                    masked(p[r][c], first_row + r, first_key + lane + 32 * c, seq_len, causal, scale_log2);

        float top[kRows], sum[kRows];
        if (REDUCE_SERIAL) put_rows<L::kPStride>(strip, p, lane);
        reduce_rows<Max, L::kPStride>(top, p, strip, statistics, lane);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const float m_new = fmaxf(m[r], top[r]), base = base_of(m_new), shrink = exp2f(m[r] - base);
            m[r] = m_new;
            l[r] *= shrink;
#pragma unroll
            for (int c = 0; c < D / 32; ++c) out[r][c] *= shrink;
#pragma unroll
            for (int c = 0; c < kKeys; ++c) p[r][c] = exp2f(p[r][c] - base);
        }
        put_rows<L::kPStride>(strip, p, lane);
        reduce_rows<Sum, L::kPStride>(sum, p, strip, statistics, lane);
#pragma unroll
        for (int r = 0; r < kRows; ++r) l[r] += sum[r];
        __syncwarp();  // the strip holds every lane's exponentials
#if SYNC_POLICY == 2
        add_outputs<D, 32, N, 1, L::kPStride, D>(out, strip, v_tile, lane, N);
        __syncthreads();  // both tiles are used up
#else
        add_outputs<D, 32, N, 1, L::kPStride, D>(out, strip, v + static_cast<std::size_t>(first_key) * D,
                                                 lane, seq_len - first_key);
        __syncwarp();  // the strip is used up
#endif
    }

#pragma unroll
    for (int r = 0; r < kRows; ++r)
        if (first_row + r < seq_len)
            store_row<D, 32>(o + static_cast<std::size_t>(first_row + r) * D, out[r], 1.0f / l[r], lane);
}

#else  // SYNC_POLICY == 5

// Calls done(row, Op over the N scores of that row) once for each row of the tile, each on one thread.
template <typename Op, int N, int STRIDE, typename Done>
__device__ inline void reduce_tile(const float* scores, Done done) {
#if REDUCE_WARP
    for (int row = threadIdx.x / 32; row < BLOCK_M; row += NUM_WARPS) {
        const int lane = threadIdx.x % 32;
        float x = scores[row * STRIDE + lane];
        for (int key = lane + 32; key < N; key += 32) x = Op::join(x, scores[row * STRIDE + key]);
        x = join_lanes<Op>(x);
        if (lane == 0) done(row, x);
    }
#else
    if (threadIdx.x < BLOCK_M) done(threadIdx.x, join_serially<Op, N>(scores + threadIdx.x * STRIDE));
#endif
}

// Grid: one block per query tile, heads in order. q, k, v, o: [heads in all, seq_len, D].
template <typename T, int D>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    forward(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o,
            int seq_len, int tiles, bool causal, float scale_log2) {
    using L = Layout<D>;
    // Threads lie 16 wide and kHigh high over the score tile, and again over the output tile.
    constexpr int N = kBlockN<D>, kHigh = kThreads / 16, kTall = BLOCK_M / kHigh, kWide = N / 16;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const std::size_t head = static_cast<std::size_t>(blockIdx.x / tiles) * seq_len * D;
    const int first_row = static_cast<int>(blockIdx.x % tiles) * BLOCK_M;
    q += head, k += head, v += head, o += head;

    float *q_tile = shared, *scores = shared + L::kScores, *tile = shared + L::kKeys;
    float *m = shared + L::kStatistics, *l = m + BLOCK_M, *shrink = l + BLOCK_M;
    stage<D, BLOCK_M, D, L::kQStride, kThreads>(q_tile, q, first_row, 0, seq_len, threadIdx.x);
    if (threadIdx.x < BLOCK_M) m[threadIdx.x] = -INFINITY, l[threadIdx.x] = 0.0f;

    float out[kTall][D / 16] = {};
    const int keys = causal ? min(seq_len, first_row + BLOCK_M) : seq_len;
    for (int first_key = 0; first_key < keys; first_key += N) {
        stage<D, N, D, L::kKStride, kThreads>(tile, k, first_key, 0, seq_len, threadIdx.x);
        __syncthreads();  // 1: K is in
        float p[kTall][kWide] = {};
        add_scores<D, kHigh, 16, L::kQStride, L::kKStride>(p, q_tile + y * L::kQStride,
                                                           tile + x * L::kKStride);
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int c = 0; c < kWide; ++c) {
                const int row = y + r * kHigh, key = x + c * 16;
                scores[row * L::kPStride + key] =
                    masked(p[r][c], first_row + row, first_key + key, seq_len, causal, scale_log2);
            }
        __syncthreads();  // 2: the scores are in, K is used up
        stage<D, N, D, L::kKStride, kThreads>(tile, v, first_key, 0, seq_len, threadIdx.x);
        reduce_tile<Max, N, L::kPStride>(scores, [=](int row, float top) {
            const float m_new = fmaxf(m[row], top);
            shrink[row] = exp2f(m[row] - base_of(m_new));
            m[row] = m_new;
        });
        __syncthreads();  // 3: the maxima are in
        for (int i = threadIdx.x; i < BLOCK_M * N; i += kThreads) {
            float* score = scores + i / N * L::kPStride + i % N;
            *score = exp2f(*score - base_of(m[i / N]));
        }
        __syncthreads();  // 4: the exponentials and V are in
        reduce_tile<Sum, N, L::kPStride>(scores,
                                         [=](int row, float sum) { l[row] = l[row] * shrink[row] + sum; });
#pragma unroll
        for (int r = 0; r < kTall; ++r)
#pragma unroll
            for (int c = 0; c < D / 16; ++c) out[r][c] *= shrink[y + r * kHigh];
        add_outputs<D, 16, N, kHigh, L::kPStride, L::kKStride>(out, scores + y * L::kPStride, tile, x, N);
        __syncthreads();  // 5: the exponentials and V are used up, the sums are in
    }

#pragma unroll
    for (int r = 0; r < kTall; ++r) {
        const int row = y + r * kHigh;
        if (first_row + row < seq_len)
            store_row<D, 16>(o + static_cast<std::size_t>(first_row + row) * D, out[r], 1.0f / l[row], x);
    }
}

#endif

template <typename T, int D>
int launch(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,
           cudaStream_t stream) {
    const auto kernel = &forward<T, D>;
    constexpr int kBytes = Layout<D>::kFloats * static_cast<int>(sizeof(float));
    const int tiles = (problem.seq_len + BLOCK_M - 1) / BLOCK_M;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(tiles) * problem.batch * problem.heads);
    config.blockDim = dim3(kThreads), config.dynamicSmemBytes = kBytes, config.stream = stream;

    cudaError_t error = cudaSuccess;
    // Asked for on every call, since the setting belongs to the current device and callers change that.
    if (kBytes > 48 * 1024)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (error == cudaSuccess)
        error = cudaLaunchKernelEx(&config, kernel, static_cast<const T*>(q), static_cast<const T*>(k),
                                   static_cast<const T*>(v), static_cast<T*>(o), problem.seq_len, tiles,
                                   problem.causal != 0, problem.scale * kLog2e);
    // Ours is returned; left behind, it would be blamed on the caller's next launch.
    if (error != cudaSuccess) cudaGetLastError();
    return static_cast<int>(error);
}

template <typename T>
int launch(const attention_problem& problem, const void* q, const void* k, const void* v, void* o,
           cudaStream_t stream) {
    return problem.head_dim == 64 ? launch<T, 64>(problem, q, k, v, o, stream)
                                  : launch<T, 128>(problem, q, k, v, o, stream);
}

}  // namespace attention_scalar

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q,
                                                  const void* k, const void* v, void* o, void* stream) {
    using namespace attention_scalar;
    const int refused = check_problem(problem, q, k, v, o, VEC_WIDTH);
    if (refused) return refused;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    switch (problem->dtype) {
        case ATTENTION_FP16: return launch<__half>(*problem, q, k, v, o, on);
        case ATTENTION_BF16: return launch<__nv_bfloat16>(*problem, q, k, v, o, on);
        default: return launch<float>(*problem, q, k, v, o, on);
    }
}

extern "C" ATTENTION_EXPORT const char* attention_error_string(int code) {
    return code > 0 ? cudaGetErrorString(static_cast<cudaError_t>(code)) : attention_scalar::refusal(code);
}

extern "C" ATTENTION_EXPORT const char* attention_tunables(void) {
#if EXTRA_STEPS
    return ATTENTION_SCALAR_TUNABLES " EXTRA_STEPS=" ATTENTION_TEXT(EXTRA_STEPS);
#else
    return ATTENTION_SCALAR_TUNABLES;
#endif
}
