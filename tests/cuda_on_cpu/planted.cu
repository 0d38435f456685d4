// A kernel that moves q to o through shared memory, each 16 bytes to the place 37 before, and faults planted in it
// that the emulator must find. The number of heads names the fault; 1 is none.
#include "attention.h"
#include "ptx.cuh"

namespace planted {

enum Fault {
    kNone = 1,
    kNoWait,
    kNoBarrier,
    kRefilledEarly,
    kStaticUnset,
    kSharedBeyond,
    kGlobalBeyond,
    kHalfAtBarrier,
    kLanesApart,
    kOneLeaves,
    kOtherCount,
    kMisaligned,
    kOtherStream,
    kNotFreed,
    kTooMuchShared
};

constexpr int kThreads = 128, kBytes = 16 * kThreads;

__global__ void move(const uint4* q, uint4* o, int tiles, int fault) {
    static __shared__ float scale[1];
    unsigned char* tile = ptx::dynamic_shared();
    const int me = static_cast<int>(threadIdx.x);
    const ptx::Address mine = ptx::shared_address(tile) + 16 * me;
    if (me == 0 && fault != kStaticUnset) scale[0] = 1.0f;
    if (fault == kOneLeaves && me == 77) return;
    if (fault == kHalfAtBarrier && me % 2) __syncthreads();
    if (fault == kOtherCount) ptx::barrier_sync(1, me < 64 ? 64 : 96);
    if (fault == kLanesApart) {
        if (me % 32 < 16)
            __syncwarp();
        else
            __syncwarp();
    }
    for (int i = 0; i < tiles; ++i) {
        ptx::copy_async_16(mine + (fault == kMisaligned ? 8 : 0), q + i * kThreads + me);
        ptx::commit_copies();
        if (fault != kNoWait) ptx::wait_copies<0>();
        if (fault != kNoBarrier) __syncthreads();
        const int from = (me + 37) % kThreads + (fault == kSharedBeyond ? 1 : 0);
        uint4 moved = reinterpret_cast<const uint4*>(tile)[from];
        if (scale[0] != 1.0f) moved.x = ~moved.x;
        o[i * kThreads + me + (fault == kGlobalBeyond ? 1 : 0)] = moved;
        if (fault != kRefilledEarly) __syncthreads();
    }
}

}  // namespace planted

extern "C" int attention_forward(const attention_problem* p, const void* q, const void*, const void*, void* o,
                                 void* stream) {
    using namespace planted;
    const int fault = p->heads, tiles = p->heads * p->seq_len * p->head_dim * 2 / kBytes;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1), config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = fault == kTooMuchShared ? 49153 : kBytes;
    config.stream = fault == kOtherStream ? nullptr : static_cast<cudaStream_t>(stream);
    void* kept = nullptr;
    if (fault == kNotFreed) cudaMallocAsync(&kept, 1, config.stream);
    return cudaLaunchKernelEx(&config, &move, static_cast<const uint4*>(q), static_cast<uint4*>(o), tiles, fault);
}
extern "C" const char* attention_error_string(int) { return ""; }
extern "C" const char* attention_tunables(void) { return "planted"; }
