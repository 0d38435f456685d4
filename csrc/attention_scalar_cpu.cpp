// The CPU twin of attention_scalar.cu: the same method, tiles and tunables, for machines without a GPU.
//
// IDEA. As in the CUDA file: BLOCK_M query rows of one head at a time walk over the keys in tiles of kBlockN,
// with online softmax (arXiv:1805.02867, arXiv:2205.14135). Two products do nearly all the work, and both are
// the inner loop of a matrix multiplication: a register block of kRows x VEC_WIDTH SIMD registers stays in
// registers while it takes one broadcast and one row of SIMD loads a step. (Goto and van de Geijn, "Anatomy
// of high-performance matrix multiplication", ACM TOMS 34(3), 2008.) For that K is laid out as kBlockN x
// head_dim tiles, transposed, once per head and worker; 16-bit inputs become fp32 then, and nothing is
// converted in the inner loops.
//
// TUNABLES. A register block stands for a warp: NUM_WARPS of them make a query tile, and its height is
// BLOCK_M / NUM_WARPS rows. VEC_WIDTH is its width in SIMD registers (never wider than the tile). kRows x
// VEC_WIDTH registers beyond the machine's (32 with AVX-512 and on arm64, 16 with AVX2) are correct and slow.
// One thread does a whole query tile, so there is no barrier; where a SYNC_POLICY has barriers, the loop over
// register blocks is cut:
//   0  each register block walks over all keys on its own
//   2  for each key tile, each register block does all its phases
//   5  for each key tile and phase, all register blocks: scores, maxima, exponentials, outputs
// All three do the same arithmetic in the same order; their results are equal bit for bit. REDUCE=warp
// reduces a row by SIMD lanes and then by halves, REDUCE=serial key by key.
//
// NUMBERS. fp32 throughout, rounded to nearest even on output. exp2_nonpositive says how exact the
// exponential is. A tile's result does not depend on which thread computes it, so the bits do not depend on
// the thread count. They do depend on the machine the compiler targets: SIMD width sets the order of sums.
//
// BUILD. g++ -std=c++17 -O3 -march=native -pthread; GCC or Clang, any target. Not with -ffast-math.
#include "attention_scalar.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef __FAST_MATH__
#error "attention_scalar_cpu.cpp needs infinities and NaN: build it without -ffast-math"
#endif

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

namespace attention_scalar {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLanes = kVectorBytes / 4;
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kInfinity = INFINITY;

inline Floats load(const float* from) {
    Floats x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
inline void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }
inline Floats all(float x) { return x - Floats{}; }

// 2^x for x <= 0. Largest error, measured on every 7th float from -0 to -126: 0.95 ULP with fused
// multiply-add, 1.21 without. 0 below -126.5; NaN stays NaN. x = n + f with n whole and |f| <= 0.5: 2^f is a
// minimax polynomial (relative error 2e-9), 2^n is put together from bits.
inline Floats exp2_nonpositive(Floats x) {
    constexpr float kShift = 0x1.8p23f;  // adding it rounds to whole numbers, held in the low mantissa bits
    x = x < all(-127.0f) ? all(-127.0f) : x;
    const Floats shifted = x + kShift;
    const Floats f = x - (shifted - kShift);
    Floats p = all(0x1.41fbbcp-13f);
    p = p * f + 0x1.5f3e54p-10f;
    p = p * f + 0x1.3b2d4cp-7f;
    p = p * f + 0x1.c6aee8p-5f;
    p = p * f + 0x1.ebfbdcp-3f;
    p = p * f + 0x1.62e430p-1f;
    p = p * f + 1.0f;
    // For a NaN these exponent bits are arbitrary, which does no harm: NaN times anything is NaN. (A cast
    // between SIMD types of one size keeps the bits.)
    const Words power = ((Words)shifted - (0x4b400000u - 127u)) << 23;
    return p * (Floats)power;
}

// 16-bit floats as bits: the conversions below are integer arithmetic without branches, which compilers
// vectorise on every target; F16C or bf16 instructions would tie the file to one.
struct Half {
    std::uint16_t bits;
};
struct Bfloat {
    std::uint16_t bits;
};

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

inline float to_float(float x) { return x; }
inline float to_float(Bfloat x) { return from_bits(static_cast<std::uint32_t>(x.bits) << 16); }
inline float to_float(Half x) {
    const std::uint32_t sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
    const std::uint32_t subnormal = to_bits(static_cast<float>(static_cast<std::int32_t>(rest)) * 0x1p-24f);
    const std::uint32_t special =
        rest >= 0x7c00u ? 0x7f800000u : 0u;  // infinity and NaN keep the widest exponent
    const std::uint32_t normal = ((rest << 13) + 0x38000000u) | special;
    return from_bits((rest < 0x400u ? subnormal : normal) | sign);
}

// To nearest, ties to even.
inline void from_float(float& to, float x) { to = x; }
inline void from_float(Bfloat& to, float x) {
    const std::uint32_t bits = to_bits(x), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    to.bits =
        static_cast<std::uint16_t>(((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) >> 16);
}
inline void from_float(Half& to, float x) {
    const std::uint32_t bits = to_bits(x), rest = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    // Below 2^-14 the sum with 0.5 leaves rest in units of 2^-24 in the mantissa, rounded by the addition
    // itself.
    const std::uint32_t subnormal = to_bits(from_bits(rest) + 0.5f) - 0x3f000000u;
    const std::uint32_t normal = (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13;
    std::uint32_t half = rest < 0x38800000u ? subnormal : normal;
    half = rest >= 0x477ff000u ? 0x7c00u : half;  // 65520, half way past the largest, rounds to infinity
    half = rest > 0x7f800000u ? 0x7e00u : half;
    to.bits = static_cast<std::uint16_t>(half | sign);
}

struct Max {
    static constexpr float kStart = -kInfinity;
    template <typename X>
    static X join(X a, X b) {
        return b > a ? b : a;
    }  // passes over a NaN in b
};
struct Sum {
    static constexpr float kStart = 0.0f;
    template <typename X>
    static X join(X a, X b) {
        return a + b;
    }
};

template <typename Op, int N>
inline float reduce(const float* row) {
#if REDUCE_WARP
    Floats joined = all(Op::kStart);
    for (int i = 0; i < N; i += kLanes) joined = Op::join(joined, load(row + i));
    float lanes[kLanes];
    store(lanes, joined);
    UNROLL
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        for (int i = 0; i < distance; ++i) lanes[i] = Op::join(lanes[i], lanes[i + distance]);
    return lanes[0];
#else
    float joined = Op::kStart;
    for (int i = 0; i < N; ++i) joined = Op::join(joined, row[i]);
    return joined;
#endif
}

// c[kRows][C] = factor[r] * c + a[kRows][A] b[steps][C]: both products of attention. Without `factors`, c
// starts as 0.
template <int A, int C>
inline void multiply(float* c, const float* factors, const float* a, const float* b, int steps) {
    constexpr int kWide = VEC_WIDTH * kLanes < C ? VEC_WIDTH : C / kLanes;
    static_assert(C % (kWide * kLanes) == 0, "the panels must cover the row");
    for (int column = 0; column < C; column += kWide * kLanes) {
        Floats sum[kRows][kWide];
        UNROLL
        for (int r = 0; r < kRows; ++r) UNROLL
        for (int w = 0; w < kWide; ++w)
            sum[r][w] = factors ? load(c + r * C + column + w * kLanes) * factors[r] : Floats{};
        for (int step = 0; step < steps; ++step) {
            Floats row[kWide];
            UNROLL
            for (int w = 0; w < kWide; ++w)
                row[w] = load(b + static_cast<std::ptrdiff_t>(step) * C + column + w * kLanes);
            UNROLL
            for (int r = 0; r < kRows; ++r) UNROLL
            for (int w = 0; w < kWide; ++w) sum[r][w] += row[w] * a[r * A + step];
        }
        UNROLL
        for (int r = 0; r < kRows; ++r) UNROLL
        for (int w = 0; w < kWide; ++w) store(c + r * C + column + w * kLanes, sum[r][w]);
    }
}

// Uninitialised, aligned to cache lines, so that no SIMD load straddles two.
template <typename X>
class Buffer {
public:
    explicit Buffer(std::size_t count)
        : data_(static_cast<X*>(::operator new(count * sizeof(X), std::align_val_t{64}))) {}
    ~Buffer() { ::operator delete(data_, std::align_val_t{64}); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    X* get() const { return data_; }

private:
    X* data_;
};

struct Shape {
    int seq_len;
    bool causal;
    float scale_log2;  // scale * log2(e): the exponential is a power of two
};

// One worker's memory and what it does to one head.
template <typename T, int D>
class Worker {
public:
    explicit Worker(const Shape& shape)
        : shape_(shape),
          key_tiles_((shape.seq_len + N - 1) / N),
          keys_(std::size_t(key_tiles_) * N * D),
          values_(kConverts ? std::size_t(shape.seq_len) * D : 1),
          tile_(1) {}

    // k, v: [seq_len, D]. Lays K out as [key tile][D][N], with zeros past the end.
    void take_head(const T* k, const T* v) {
        for (int tile = 0; tile < key_tiles_; ++tile) {
            float* to = keys_.get() + std::size_t(tile) * N * D;
            for (int key = 0; key < N; ++key) {
                const int from = tile * N + key;
                if (from < shape_.seq_len)
                    for (int d = 0; d < D; ++d) to[d * N + key] = to_float(k[std::size_t(from) * D + d]);
                else
                    for (int d = 0; d < D; ++d) to[d * N + key] = 0.0f;
            }
        }
        if constexpr (kConverts) {
            const std::size_t count = std::size_t(shape_.seq_len) * D;
            for (std::size_t i = 0; i < count; ++i) values_.get()[i] = to_float(v[i]);
            v_ = values_.get();
        } else {
            v_ = v;
        }
    }

    // q, o: [seq_len, D]. Rows first_row to first_row + BLOCK_M, as far as they exist.
    void query_tile(const T* q, T* o, int first_row) {
        Tile& t = *tile_.get();
        const int rows = std::min(BLOCK_M, shape_.seq_len - first_row);
        for (int i = 0; i < rows * D; ++i) t.q[i] = to_float(q[std::size_t(first_row) * D + i]);
        std::fill(t.q + rows * D, t.q + BLOCK_M * D, 0.0f);
        std::fill(t.out, t.out + BLOCK_M * D, 0.0f);
        std::fill(t.m, t.m + kStatistics, -kInfinity);
        std::fill(t.l, t.l + kStatistics, 0.0f);

        const int keys = shape_.causal ? std::min(shape_.seq_len, first_row + BLOCK_M) : shape_.seq_len;
#if SYNC_POLICY == 0
        for (int block = 0; block < NUM_WARPS; ++block)
            for (int key = 0; key < keys; key += N) {
                scores(block, first_row, key);
                maxima(block);
                exponentials(block);
                outputs(block, key);
            }
#elif SYNC_POLICY == 2
        for (int key = 0; key < keys; key += N)
            for (int block = 0; block < NUM_WARPS; ++block) {
                scores(block, first_row, key);
                maxima(block);
                exponentials(block);
                outputs(block, key);
            }
#else
        for (int key = 0; key < keys; key += N) {
            for (int block = 0; block < NUM_WARPS; ++block) scores(block, first_row, key);
            for (int block = 0; block < NUM_WARPS; ++block) maxima(block);
            for (int block = 0; block < NUM_WARPS; ++block) exponentials(block);
            for (int block = 0; block < NUM_WARPS; ++block) outputs(block, key);
        }
#endif
        for (int row = 0; row < rows; ++row) {
            const float factor = 1.0f / t.l[row];
            T* to = o + std::size_t(first_row + row) * D;
            for (int d = 0; d < D; ++d) from_float(to[d], t.out[row * D + d] * factor);
        }
    }

private:
    static constexpr int N = kBlockN<D>;
    static constexpr bool kConverts = !std::is_same<T, float>::value;
    static constexpr int kStatistics =
        BLOCK_M + kLanes;  // room for a SIMD access to the last block's few rows
    struct alignas(64) Tile {
        float q[BLOCK_M * D], p[BLOCK_M * N], out[BLOCK_M * D];
        float m[kStatistics], l[kStatistics], shrink[kStatistics];
    };

    void scores(int block, int first_row, int first_key) {
        Tile& t = *tile_.get();
        float* p = t.p + block * kRows * N;
        first_row += block * kRows;
        multiply<D, N>(p, nullptr, t.q + block * kRows * D, keys_.get() + std::size_t(first_key) * D, D);
        for (int i = 0; i < kRows * N; i += kLanes) store(p + i, load(p + i) * shape_.scale_log2);
        // A key that a row must not see scores -inf, whatever the product was.
        for (int r = 0; r < kRows; ++r) {
            const int end = shape_.causal ? std::min(first_row + r + 1, shape_.seq_len) : shape_.seq_len;
            for (int i = std::max(end - first_key, 0); i < N; ++i) p[r * N + i] = -kInfinity;
        }
    }

    void maxima(int block) {
        Tile& t = *tile_.get();
        float shrink[kRows + kLanes] = {};
        for (int r = 0, row = block * kRows; r < kRows; ++r, ++row) {
            const float m = Max::join(t.m[row], reduce<Max, N>(t.p + row * N));
            shrink[r] = t.m[row] - base_of(m);
            t.m[row] = m;
        }
        for (int r = 0; r < kRows; r += kLanes) store(shrink + r, exp2_nonpositive(load(shrink + r)));
        std::copy(shrink, shrink + kRows, t.shrink + block * kRows);
    }

    void exponentials(int block) {
        Tile& t = *tile_.get();
        for (int row = block * kRows; row < (block + 1) * kRows; ++row) {
            float* p = t.p + row * N;
            const float base = base_of(t.m[row]);
            UNROLL
            for (int i = 0; i < N; i += kLanes) store(p + i, exp2_nonpositive(load(p + i) - base));
            t.l[row] = t.l[row] * t.shrink[row] + reduce<Sum, N>(p);
        }
    }

    void outputs(int block, int first_key) {
        Tile& t = *tile_.get();
        multiply<N, D>(t.out + block * kRows * D, t.shrink + block * kRows, t.p + block * kRows * N,
                       v_ + std::size_t(first_key) * D, std::min(N, shape_.seq_len - first_key));
    }

    // What is subtracted before 2^x. A row that has seen -inf only must not compute -inf - -inf.
    static float base_of(float m) { return m == -kInfinity ? 0.0f : m; }

    Shape shape_;
    int key_tiles_;
    Buffer<float> keys_, values_;
    Buffer<Tile> tile_;
    const float* v_ = nullptr;
};

// Work is cut into units of one head and every groups-th query tile of it: striding gives causal units equal
// work, and a worker that takes units in order lays out few heads. Workers draw units until none is left.
template <typename T, int D>
int run(const attention_problem& problem, const T* q, const T* k, const T* v, T* o) {
    const Shape shape{problem.seq_len, problem.causal != 0, problem.scale * kLog2e};
    const std::int64_t heads = std::int64_t(problem.batch) * problem.heads;
    const std::int64_t tiles = (std::int64_t(problem.seq_len) + BLOCK_M - 1) / BLOCK_M;
    const std::int64_t threads = std::min<std::int64_t>(std::max(problem.threads, 1), heads * tiles);
    const std::int64_t groups = std::min(tiles, (4 * threads + heads - 1) / heads);
    std::atomic<std::int64_t> next{0};

    auto work = [&] {
        try {
            Worker<T, D> worker(shape);
            std::int64_t taken = -1;
            for (std::int64_t unit; (unit = next.fetch_add(1)) < heads * groups;) {
                const std::int64_t head = unit / groups;
                const std::size_t offset = std::size_t(head) * problem.seq_len * D;
                if (head != taken) worker.take_head(k + offset, v + offset);
                taken = head;
                for (std::int64_t tile = unit % groups; tile < tiles; tile += groups)
                    worker.query_tile(q + offset, o + offset, int(tile) * BLOCK_M);
            }
        } catch (const std::bad_alloc&) {
            // A worker without memory draws nothing; the others do its share. Only if all fail is work left.
        }
    };
    std::vector<std::thread> team;
    try {
        team.reserve(threads - 1);
        while (std::int64_t(team.size()) < threads - 1) team.emplace_back(work);
    } catch (const std::exception&) {
        // No more threads to be had: those that run, and this one, do the work.
    }
    work();
    for (std::thread& thread : team) thread.join();
    return next.load() < heads * groups ? ATTENTION_ERROR_MEMORY : ATTENTION_OK;
}

template <typename T>
int run(const attention_problem& problem, const void* q, const void* k, const void* v, void* o) {
    const auto function = problem.head_dim == 64 ? &run<T, 64> : &run<T, 128>;
    return function(problem, static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
                    static_cast<T*>(o));
}

}  // namespace attention_scalar

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q,
                                                  const void* k, const void* v, void* o, void*) {
    using namespace attention_scalar;
    const int refused = check_problem(problem, q, k, v, o, 1);
    if (refused) return refused;
    switch (problem->dtype) {
        case ATTENTION_FP16: return run<Half>(*problem, q, k, v, o);
        case ATTENTION_BF16: return run<Bfloat>(*problem, q, k, v, o);
        default: return run<float>(*problem, q, k, v, o);
    }
}

extern "C" ATTENTION_EXPORT const char* attention_error_string(int code) {
    return attention_scalar::refusal(code);
}

extern "C" ATTENTION_EXPORT const char* attention_tunables(void) { return ATTENTION_SCALAR_TUNABLES; }
