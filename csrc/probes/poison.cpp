// Fills stacks with a pattern, so that a kernel which reads a local variable that it never wrote is found out.
//
// A plain shared object, called just before the kernel. Stacks are reached in three ways: that of the calling
// thread; those of a pool's threads, by handing `poison_stack` to the pool (OpenMP's GOMP_parallel takes this very
// signature); and those that the C library keeps of threads that have ended, and gives to the next ones.
#include <alloca.h>

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kTileBytes = 4096;
constexpr std::size_t kDepthBytes = 256 * 1024;  // a sixteenth of the smallest stack that a pool has by default

unsigned char tile[kTileBytes];

// As a function of its own, so that the filled memory is below every frame that is alive.
__attribute__((noinline)) void fill_below() {
    auto* memory = static_cast<unsigned char*>(alloca(kDepthBytes));
    for (std::size_t start = 0; start < kDepthBytes; start += kTileBytes)
        std::memcpy(memory + start, tile, kTileBytes);
    asm volatile("" : : "r"(memory) : "memory");  // nobody reads it: without this the compiler leaves it out
}

}  // namespace

extern "C" {

// The pattern of all later calls: `bytes` of it, repeated. Not while another thread fills.
void poison_pattern(const void* pattern, std::size_t bytes) {
    for (std::size_t i = 0; i < kTileBytes; ++i) tile[i] = static_cast<const unsigned char*>(pattern)[i % bytes];
}

void poison_stack(void*) { fill_below(); }

void Py_IncRef(void*);  // of the interpreter that loads this

// The same as a function of CPython, without arguments, which gives `self`. Called through ctypes, a fill would begin
// deeper in the stack than an extension's frames do; so it begins above them.
void* poison_calling_stack(void* self, void*) {
    fill_below();
    Py_IncRef(self);
    return self;
}

// Of `count` threads that are all alive at once, and then end. glibc keeps their stacks for the next threads, but
// gives all except the uppermost 16 KiB of each back to the system: only that much of a new thread's is filled.
void poison_new_threads(int count) {
    std::mutex mutex;
    std::condition_variable all_here;
    int here = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
        threads.emplace_back([&] {
            fill_below();
            std::unique_lock<std::mutex> lock(mutex);
            if (++here == count) all_here.notify_all();
            all_here.wait(lock, [&] { return here == count; });
        });
    for (auto& thread : threads) thread.join();
}

}  // extern "C"
