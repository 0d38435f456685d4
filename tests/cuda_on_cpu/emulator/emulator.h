// CUDA's execution model on a CPU, for tests: the .cu sources of this project, compiled by a C++ compiler with the
// headers of this folder in front of CUDA's, run under address and undefined-behaviour sanitizers. No GPU needed.
//
//     g++ -std=c++17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -ftrivial-auto-var-init=pattern
//         -Wno-unknown-pragmas -fsanitize-sections=emulated_shared -I emulator -I . -I ../../csrc
//         -x c++ emulator/emulator.cpp emulator/serve.cpp ../../csrc/KERNEL.cu -o emulated
//
// WHAT IT IS. Every thread of a block is a fiber with a stack of its own; blocks run one after the other. A fiber runs
// until it waits: at a barrier, a shuffle, a vote, or an instruction that a warp executes as one (ldmatrix, mma). The
// order of blocks, warps and lanes is drawn from a seed (`Settings::schedule`), and some warps are run far ahead of
// others, so that a missing barrier shows: as NaN, or as output that depends on the seed.
//   * Shared memory holds NaN in every type before each block, has exactly the size that the launch asked for, and
//     what lies behind it is poisoned for the address sanitizer. So is memory that a cp.async will still write.
//   * cp.async delivers at the wait, the latest moment that is allowed; until then its target reads as NaN.
//   * If nobody can run, or lanes of a warp wait at different places, the program says who waits where, and aborts.
//   * Barriers are strict: every thread of the block must come, one that has ended is missed.
//
// WHAT IT IS NOT. No timing, no caches, no register limits, no memory model weaker than the order drawn. Sums inside
// an mma are rounded once, where hardware may round more often.
//
// WHAT SOURCES MUST DO. Launch by cudaLaunchKernelEx, not <<<>>>, which is no C++. Write
// `static __shared__` for shared variables of fixed size (CUDA takes both, C++ needs the word), and take dynamic
// shared memory from ptx::dynamic_shared(). Instructions that CUDA C++ has no name for go through ptx.cuh.
#ifndef EMULATOR_H
#define EMULATOR_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 from) : x(from.x), y(from.y), z(from.z) {}
};

// Of the thread that runs.
extern uint3 threadIdx;
extern dim3 blockIdx, blockDim, gridDim;

namespace emulator {

constexpr unsigned kWarp = 32, kMostThreads = 1024, kBarriers = 16;
constexpr std::size_t kMostShared = 227 * 1024;

// What a test chooses.
struct Settings {
    unsigned schedule = 0;  // seed of every order; 0: as the hardware numbers them
    int major = 9, minor = 0, multiprocessors = 132;
    std::size_t shared_optin = kMostShared;  // a block's most dynamic shared memory
    const void* stream = nullptr;            // where all work must go
};
extern Settings settings;

// What a test reads.
struct Counts {
    long launches = 0, blocks = 0;
    long bank_conflicts = 0;  // ldmatrix phases in which two rows meet in a bank
    std::map<const void*, std::size_t> allocations;  // of cudaMallocAsync, not freed
};
extern Counts counts;

// Where a thread waits.
struct Place {
    const char* what;
    const char* file;
    int line;
};
#define EMULATOR_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// One cp.async: `present` bytes, then zeros up to `bytes`.
struct Copy {
    unsigned char* to;
    const void* from;
    unsigned bytes, present;
};

struct Thread {
    unsigned number, warp, lane;            // in its block
    std::vector<Copy> issued;               // in no group yet
    std::vector<std::vector<Copy>> groups;  // oldest first
    bool waited;                            // for what came before it in the stream
};

// The thread that runs.
Thread& self();

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Waits until `ready` holds. It is looked at often, by others too, and must change nothing.
void wait(const Place& place, const std::function<bool()>& ready);
// Something that happens by itself, at a time that the schedule picks, at the latest when all threads wait.
void defer(std::function<void()> action);

// Waits until every lane of `mask` is here; the last to come runs `action` on what the lanes brought, by lane.
using Action = void (*)(void* const* slots, unsigned mask);
void meet(const Place& place, unsigned mask, void* slot, Action action);

// The block's barriers: `count` threads must come, whether or not they wait.
void barrier_sync(const Place& place, unsigned id, unsigned count);
void barrier_arrive(const Place& place, unsigned id, unsigned count);
unsigned threads_of_block();

// The block's dynamic shared memory, and an address as PTX counts it.
unsigned char* shared_memory();
std::uint32_t shared_address(const void* pointer);
unsigned char* at_shared(std::uint32_t address);

// A launch that starts before the work in front of it has ended: each thread must wait for that, and copy nothing before.
void check_waited(const Place& place);

// A number below `below`, from the schedule.
unsigned draw(unsigned below);

// Runs `body` in every thread of every block; `early`: as a programmatic dependent launch. Returns a CUDA error code.
int launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared, const void* stream, bool early,
           const std::function<void()>& body);
int allow_shared(const void* kernel, int bytes);
void check_stream(const void* stream, const char* what);

}  // namespace emulator

#endif
