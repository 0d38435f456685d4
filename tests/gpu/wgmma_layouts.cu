// What the PTX ISA leaves open to reading about Hopper's instructions, asked of the device: some seconds on an H200.
//
//     nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I csrc tests/gpu/wgmma_layouts.cu -o layouts && ./layouts
//
// Small integers go through csrc/ptx_hopper.cuh, so results are exact or wrong. Each question is a process of its own,
// with a time limit: one that hangs or faults spoils no other. A line says yes, no, "hangs" or "fails", what was asked,
// and, where the answer is not what the kernels assume, what they would have to do. Exit status 0: all as assumed;
// lines marked "other reading" must not hold, since it would make no difference otherwise.
#define EARLY_LAUNCH 1
#include "attention_family.h"
#include "attention_wgmma.h"
#include "ptx_hopper.cuh"
#include "tensor_map.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#ifdef CUDA_EMULATOR
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
int cudaMalloc(void** to, std::size_t bytes) { return *to = std::malloc(bytes), 0; }
int cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) { return std::memcpy(to, from, bytes), 0; }
int cudaFree(void* pointer) { return std::free(pointer), 0; }
#endif

namespace {

constexpr int kRows = 64, kColumns = 128, kPanelBytes = kRows * ptx::kRowBytes, kLimit_s = 20;

// What of a descriptor is tried.
struct Fields {
    int k_leading, mn_leading, mn_stride;  // bytes
};

__device__ std::uint64_t with_stride(std::uint64_t matrix, int bytes) {
    return (matrix & ~(std::uint64_t(0x3fff) << 32)) | std::uint64_t(bytes >> 4) << 32;
}

// The integer at (row, key) of W: any that differ.
__host__ __device__ int weight(int row, int key) { return (row * 5 + key * 3) % 7 - 3; }

// Element i of an accumulator, as attention_wgmma.cu reads it.
__device__ int row_of(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2); }
__device__ int column_of(int thread, int i) { return thread % 4 * 2 + 8 * (i / 4) + i % 2; }

__device__ void await(ptx::Barrier* barrier, int parity) {
    while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {
    }
}

// One warpgroup loads A [64, 128] and B [64 or fewer, 128], row by row in two panels of 64 columns, and computes
// A B^T, with B K-major, and W B, with integers W in registers and B MN-major: all columns by one product, or BY_PANELS.
// scores: [64, 64]; outputs: [64, 128].
template <bool BY_PANELS>
__global__ void __launch_bounds__(128, 1) multiply(const __grid_constant__ ptx::TensorMap a_map,
                                                   const __grid_constant__ ptx::TensorMap b_map, float* scores,
                                                   float* outputs, const Fields fields) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    unsigned char *a = ptx::dynamic_shared(), *b = a + 2 * kPanelBytes;
    auto* filled = reinterpret_cast<ptx::Barrier*>(b + 2 * kPanelBytes);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) {
        ptx::mbarrier_init(filled, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_tx(filled, 4 * kPanelBytes);
        for (int panel = 0; panel < 2; ++panel) {
            ptx::load_box(a + panel * kPanelBytes, &a_map, filled, panel * ptx::kPanelColumns, 0, 1);
            ptx::load_box(b + panel * kPanelBytes, &b_map, filled, panel * ptx::kPanelColumns, 0, 1);
        }
    }
    __syncthreads();
    await(filled, 0);
    float s[32];
    const std::uint64_t left = ptx::descriptor(ptx::shared_address(a), static_cast<std::uint32_t>(fields.k_leading));
    const std::uint64_t right = ptx::descriptor(ptx::shared_address(b), static_cast<std::uint32_t>(fields.k_leading));
    ptx::wgmma_fence();
#pragma unroll
    for (int column = 0; column < kColumns; column += 16) {
        const int bytes = column / ptx::kPanelColumns * kPanelBytes + column % ptx::kPanelColumns * 2;
        ptx::wgmma<__half>(s, ptx::advanced(left, bytes), ptx::advanced(right, bytes), column > 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>(s);

    std::uint32_t weights[16];
#pragma unroll
    for (int i = 0; i < 16; ++i)
        weights[i] = ptx::cvt_pair<__half>(
            static_cast<float>(weight(row_of(thread, 2 * i), column_of(thread, 2 * i))),
            static_cast<float>(weight(row_of(thread, 2 * i + 1), column_of(thread, 2 * i + 1))));
    const std::uint64_t values = with_stride(
        ptx::descriptor(ptx::shared_address(b), static_cast<std::uint32_t>(fields.mn_leading)), fields.mn_stride);
    constexpr int kParts = BY_PANELS ? 2 : 1, kWidth = kColumns / kParts / 2;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        float o[kWidth] = {};
        ptx::wgmma_fence();
#pragma unroll
        for (int key = 0; key < kRows; key += 16)
            ptx::wgmma<__half>(o, weights + key / 4, ptx::advanced(values, part * kPanelBytes + key * ptx::kRowBytes), true);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>(o);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            outputs[row_of(thread, i) * kColumns + part * 2 * kWidth + column_of(thread, i)] = o[i];
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) scores[row_of(thread, i) * kRows + column_of(thread, i)] = s[i];
#endif
}

void require(int error, const char* what) {
    if (!error) return;
    std::fprintf(stderr, "%s: error %d\n", what, error);
    std::exit(2);
}

// An array on the device, and what the host put there or gets from there.
template <typename T>
class Array {
public:
    explicit Array(int size, T value) : host(static_cast<std::size_t>(size), value) {
        require(cudaMalloc(&data_, host.size() * sizeof(T)), "cudaMalloc");
    }
    ~Array() { cudaFree(data_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* put() {
        require(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
        return static_cast<T*>(data_);
    }
    void get() { require(cudaMemcpy(host.data(), data_, host.size() * sizeof(T), cudaMemcpyDeviceToHost), "the kernel"); }

    std::vector<T> host;

private:
    void* data_ = nullptr;
};

struct Result {
    bool scores, outputs;
};

// The middle one of three heads of `keys` rows, of which the first and the last must not be read.
template <bool BY_PANELS = false>
Result run(int keys, const Fields& fields) {
    const int size = 3 * kRows * kColumns;
    Array<__half> a(size, __float2half(100.0f)), b(size, __float2half(100.0f));
    Array<float> scores(kRows * kRows, NAN), outputs(kRows * kColumns, NAN);
    const auto a_at = [](int row, int column) { return (row * 3 + column * 7 + row * column % 5) % 9 - 4; };
    const auto b_at = [](int row, int column) { return (row * 11 + column * 2 + row * column % 3) % 5 - 2; };
    for (int column = 0; column < kColumns; ++column) {
        for (int row = 0; row < kRows; ++row)
            a.host[(kRows + row) * kColumns + column] = __float2half(static_cast<float>(a_at(row, column)));
        for (int row = 0; row < keys; ++row)
            b.host[(keys + row) * kColumns + column] = __float2half(static_cast<float>(b_at(row, column)));
    }
    ptx::TensorMap a_map, b_map;
    if (!tensor_map::encode<__half>(a_map, a.put(), 3, kRows, kColumns, kRows) ||
        !tensor_map::encode<__half>(b_map, b.put(), 3, keys, kColumns, kRows))
        require(1, "tensor maps");
    require(attention_family::launch(&multiply<BY_PANELS>, dim3(1), 128, 4 * kPanelBytes + 8, nullptr, a_map, b_map,
                                     scores.put(), outputs.put(), fields),
            "launch");
    scores.get(), outputs.get();
    Result right{true, true};
    for (int row = 0; row < kRows; ++row) {
        for (int key = 0; key < kRows; ++key) {
            int sum = 0;
            for (int column = 0; key < keys && column < kColumns; ++column)
                sum += a_at(row, column) * b_at(key, column);
            right.scores = right.scores && scores.host[row * kRows + key] == static_cast<float>(sum);
        }
        for (int column = 0; column < kColumns; ++column) {
            int sum = 0;
            for (int key = 0; key < keys; ++key) sum += weight(row, key) * b_at(key, column);
            right.outputs = right.outputs && outputs.host[row * kColumns + column] == static_cast<float>(sum);
        }
    }
    return right;
}

constexpr Fields kAssumed{0, kPanelBytes, ptx::kAtomBytes};

// The roles of attention_wgmma.cu without its arithmetic: registers move from the loading warpgroup to the others, tiles
// of 64 rows come through a ring of two stages, and the others take turns. sums: [warpgroups, 64], of the columns.
constexpr int kRounds = 9;
template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    take_turns(const __grid_constant__ ptx::TensorMap map, float* sums) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    constexpr int kWarpgroup = attention_wgmma::kWarpgroup;
    unsigned char* tiles = ptx::dynamic_shared();
    auto *filled = reinterpret_cast<ptx::Barrier*>(tiles + 2 * kPanelBytes), *used = filled + 2;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < 2; ++stage) {
            ptx::mbarrier_init(&filled[stage], 1);
            ptx::mbarrier_init(&used[stage], S::kConsumers * kWarpgroup / 32);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
    if (warpgroup == S::kConsumers) {
        ptx::setmaxnreg_dec<S::kProducerRegisters>();
        if (threadIdx.x % kWarpgroup) return;
        for (int round = 0; round < kRounds; ++round) {
            await(&used[round % 2], round / 2 % 2 ^ 1);
            ptx::mbarrier_arrive_expect_tx(&filled[round % 2], kPanelBytes);
            ptx::load_box(tiles + round % 2 * kPanelBytes, &map, &filled[round % 2], 0, round * kRows, 0);
        }
        return;
    }
    ptx::setmaxnreg_inc<S::kConsumerRegisters>();
    const int me = static_cast<int>(threadIdx.x) % kWarpgroup, next = (warpgroup + 1) % S::kConsumers;
    float sum = 0.0f;
    if (S::kConsumers > 1 && next == 0) ptx::barrier_arrive(1, 2 * kWarpgroup);
    for (int round = 0; round < kRounds; ++round) {
        await(&filled[round % 2], round / 2 % 2);
        if (S::kConsumers > 1) ptx::barrier_sync(1 + warpgroup, 2 * kWarpgroup);
        for (int row = 0; row < kRows && me < ptx::kPanelColumns; ++row) {
            const int piece = me / 8 ^ row % 8;  // the 128-byte swizzle
            sum += __half2float(*reinterpret_cast<const __half*>(tiles + round % 2 * kPanelBytes + row * ptx::kRowBytes +
                                                                 piece * 16 + me % 8 * 2));
        }
        if (S::kConsumers > 1) ptx::barrier_arrive(1 + next, 2 * kWarpgroup);
        __syncwarp();
        if (me % 32 == 0) ptx::mbarrier_arrive(&used[round % 2]);
    }
    if (S::kConsumers > 1 && warpgroup == 0) ptx::barrier_sync(1, 2 * kWarpgroup);
    if (me < ptx::kPanelColumns)
        sums[(blockIdx.x * S::kConsumers + warpgroup) * ptx::kPanelColumns + me] = sum;
#endif
}

// Every block of a grid that fills the device gets the same sums; the last tile ends past the tensor.
template <typename S>
bool roles() {
    const int rows = kRounds * kRows - 5;
    const int blocks = attention_family::device_attribute(cudaDevAttrMultiProcessorCount) * S::kBlocksPerSm;
    Array<__half> tensor(rows * ptx::kPanelColumns, __float2half(0.0f));
    std::vector<int> wanted(ptx::kPanelColumns, 0);
    for (int i = 0; i < rows * ptx::kPanelColumns; ++i) {
        const int value = (i * 7 + i / 64 * 3) % 5 - 2;
        tensor.host[static_cast<std::size_t>(i)] = __float2half(static_cast<float>(value));
        wanted[static_cast<std::size_t>(i % ptx::kPanelColumns)] += value;
    }
    Array<float> sums(blocks * S::kConsumers * ptx::kPanelColumns, NAN);
    ptx::TensorMap map;
    if (!tensor_map::encode<__half>(map, tensor.put(), 1, rows, ptx::kPanelColumns, kRows)) require(1, "tensor map");
    require(attention_family::launch(&take_turns<S>, dim3(static_cast<unsigned>(blocks)), S::kThreads,
                                     2 * kPanelBytes + 4 * 8, nullptr, map, sums.put()),
            "launch");
    sums.get();
    bool right = true;
    for (std::size_t i = 0; i < sums.host.size(); ++i)
        right = right && sums.host[i] == static_cast<float>(wanted[i % ptx::kPanelColumns]);
    return right;
}

__global__ void is_aligned(int* answer) { *answer = ptx::shared_address(ptx::dynamic_shared()) % 1024 == 0; }

bool alignment() {
    Array<int> answer(1, -1);
    require(attention_family::launch(&is_aligned, dim3(1), 1, 1024, nullptr, answer.put()), "launch");
    return answer.get(), answer.host[0] == 1;
}

// Each launch adds 1 to what the one before wrote, at another place; some of its blocks are late.
constexpr int kCells = 1 << 16;
__global__ void add_one(const int* from, int* to) {
    ptx::wait_for_stream();
#ifndef CUDA_EMULATOR
    if (blockIdx.x % 16 == 0) __nanosleep(10000);
#endif
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), at = (i * 17 + 5) % kCells;
    to[i] = from[at] + 1;
}

#ifdef CUDA_EMULATOR
bool early(bool) {
    Array<int> from(kCells, 1), to(kCells, 0);
    from.put();
    require(attention_family::launch<true>(&add_one, dim3(kCells / 256), 256, 0, nullptr, from.put(), to.put()), "launch");
    return to.get(), to.host[7] == 2;
}
#else
bool early(bool captured) {
    constexpr int kLaunches = 200;
    Array<int> first(kCells, 0), second(kCells, -1000);
    int* cells[2] = {first.put(), second.put()};
    cudaStream_t stream;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    if (captured) require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < kLaunches; ++i)
        require(attention_family::launch<true>(&add_one, dim3(kCells / 256), 256, 0, stream, cells[i % 2],
                                               cells[(i + 1) % 2]),
                "launch");
    if (captured) {
        cudaGraph_t graph;
        cudaGraphExec_t instance;
        require(cudaStreamEndCapture(stream, &graph), "capture");
        require(cudaGraphInstantiateWithFlags(&instance, graph, 0), "instantiate");
        require(cudaGraphLaunch(instance, stream), "replay");
    }
    require(cudaStreamSynchronize(stream), "the kernels");
    first.get();
    bool right = true;
    for (const int cell : first.host) right = right && cell == kLaunches;
    return right;
}
#endif

struct Question {
    const char *what, *otherwise;
    bool (*holds)();
    bool wanted;
};

const Question kQuestions[] = {
    {"dynamic shared memory starts at a multiple of 1024 bytes", "round its address up in ptx::dynamic_shared",
     [] { return alignment(); }, true},
    {"K-major: stride offset 1024, the start moves by 32 bytes within a swizzle; D's fragment",
     "nothing of attention_wgmma.cu works: compare with other readings of the descriptor",
     [] { return run(kRows, kAssumed).scores; }, true},
    {"K-major: the leading offset is not used", "set it to 16 bytes in ptx::descriptor, as CUTLASS does",
     [] { return run(kRows, {512, kPanelBytes, ptx::kAtomBytes}).scores; }, true},
    {"MN-major, 64 columns: the stride offset leads to the next 8 rows; A's fragment",
     "V must be transposed by the loads: build with FAMILY=mma meanwhile",
     [] { return run<true>(kRows, kAssumed).outputs; }, true},
    {"MN-major, 128 columns: the leading offset leads to the next 64",
     "multiply V panel by panel, with two products of 64 columns, which the line above decides",
     [] { return run(kRows, kAssumed).outputs; }, true},
    {"MN-major, other reading: the two offsets swapped", "swap them in Consumer's v_",
     [] { return run(kRows, {0, ptx::kAtomBytes, kPanelBytes}).outputs; }, false},
    {"a box past the end: zeros, the next head is not read, and the barrier counts all bytes",
     "count the bytes that are there in load_tile",
     [] {
         const Result part = run(37, kAssumed);
         return part.scores && part.outputs;
     },
     true},
    {"a box taller than the tensor", "no taller box than there are rows",
     [] {
         const Result part = run(1, kAssumed);
         return part.scores && part.outputs;
     },
     true},
    {"three warpgroups of 160 registers and one of 32: phases, turns and setmaxnreg", "CONSUMERS_64=2",
     [] { return roles<attention_wgmma::Settings<64>::Tall>(); }, true},
    {"two warpgroups of 240 registers and one of 24: phases, turns and setmaxnreg", "PINGPONG=0, or CONSUMERS_128=1",
     [] { return roles<attention_wgmma::Settings<128>::Tall>(); }, true},
    {"one warpgroup of 232 registers and one of 24, two blocks a multiprocessor", "FAMILY=mma for what has few rows",
     [] { return roles<attention_wgmma::Settings<64>::Low>(); }, true},
    {"EARLY_LAUNCH: the runtime tells code that waits from code that does not", "it has no effect: ask for sm_90 instead",
     [] { return attention_family::waits_for_stream(&add_one); }, true},
    {"EARLY_LAUNCH: a kernel sees all that the one before wrote", "EARLY_LAUNCH=0", [] { return early(false); }, true},
    {"EARLY_LAUNCH: the same in a captured graph", "EARLY_LAUNCH=0", [] { return early(true); }, true},
};

// Asked in a process of its own, which may hang or fault.
bool ask(const Question& question) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(kLimit_s);
        std::exit(question.holds() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const bool ended = WIFEXITED(status), fine = ended && WEXITSTATUS(status) == !question.wanted;
    const char* answers[] = {"yes", "no"};
    const bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    std::printf("%-5s %s\n",
                ended && WEXITSTATUS(status) < 2 ? answers[WEXITSTATUS(status)] : hung ? "hangs" : "fails", question.what);
    if (!fine) std::printf("      instead: %s\n", question.otherwise);
    return fine;
}

}  // namespace

int main() {
#ifdef CUDA_EMULATOR
    emulator::settings.multiprocessors = 2;
#endif
    bool fine = true;
    for (const Question& question : kQuestions) fine &= ask(question);
    return fine ? 0 : 1;
}
