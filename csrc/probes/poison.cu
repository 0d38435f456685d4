// Fills the shared memory of every SM with a pattern, so that a kernel which reads some that it never wrote is
// found out. A plain shared object, called through ctypes on the kernel's stream just before the kernel.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>

namespace {

constexpr unsigned kTileWords = 64;
constexpr unsigned kThreads = 256;
// Each block stays for about 20 us: with all shared memory taken, no SM holds two, so that every SM gets one.
constexpr long long kStayCycles = 40000;
constexpr int kBlocksPerSm = 2;

struct Tile {
    unsigned words[kTileWords];
};

__global__ void fill(const Tile tile, unsigned words) {
    extern __shared__ unsigned memory[];
    volatile unsigned* kept = memory;  // nobody reads it: otherwise the compiler leaves it out
    const long long start = clock64();
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) kept[i] = tile.words[i % kTileWords];
    __syncthreads();
    while (clock64() - start < kStayCycles) {
    }
}

}  // namespace

// Queues the fill on `stream` (a cudaStream_t) of the current device. `pattern`: `bytes` of it, repeated.
// Returns a cudaError_t, 0 for success. The 1 KiB of each block that CUDA keeps for itself is not reached.
extern "C" int poison_shared(const void* pattern, std::size_t bytes, void* stream) {
    int device = 0, sms = 0, most = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    if (error != cudaSuccess) return static_cast<int>(error);
    Tile tile;
    for (std::size_t i = 0; i < sizeof tile; ++i)
        reinterpret_cast<unsigned char*>(&tile)[i] = static_cast<const unsigned char*>(pattern)[i % bytes];
    fill<<<kBlocksPerSm * sms, kThreads, most, static_cast<cudaStream_t>(stream)>>>(
        tile, static_cast<unsigned>(most) / sizeof(unsigned));
    return static_cast<int>(cudaGetLastError());
}

extern "C" const char* poison_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
