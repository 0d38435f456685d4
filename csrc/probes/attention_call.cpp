// One call of a kernel's C entry point for a checker, on a problem and inputs from outside: no Python, no PyTorch,
// and every tensor in an allocation of exactly its own size, so that one element too far is out of bounds. (A GPU's
// lie side by side: compute-sanitizer's --padding leaves room between them that is nobody's.)
//
//     g++ -std=c++17 -g -fsanitize=address,undefined -I csrc csrc/probes/attention_call.cpp KERNEL.cpp -o call
//     nvcc -x cu -I csrc -c csrc/probes/attention_call.cpp -o call.o && nvcc call.o KERNEL.cuda.o -o call
//     ./call BATCH HEADS SEQ_LEN HEAD_DIM DTYPE CAUSAL THREADS SCALE INPUTS OUTPUT [FAULT]
//
// INPUTS holds the bytes of q, k and v, one after another; o's are written to OUTPUT. DTYPE is the number in
// attention.h. Exit status 0, and "call: done" at the end: it was called. 2: it could not be. 3: it refused, and says
// why.
//
// FAULT plants what a checker must find, or else its silence says nothing:
//   short          o's allocation is one element too small, so the kernel's own last store is out of bounds
//   race           two threads add to one variable; on a GPU the threads of a block, to shared memory
//   overflow       a signed integer overflows (CPU)
//   uninitialised  an automatic variable that nobody set goes into o (CPU); the end of q is never written (CUDA)
//   barrier        half of each warp waits at a barrier that the other half never comes to (CUDA)
#include "attention.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace {

[[noreturn]] void fail(int status, const char* what, const char* why) {
    std::fprintf(stderr, "call: %s: %s\n", what, why);
    std::exit(status);
}

#ifdef __CUDACC__

void require(cudaError_t error, const char* what) {
    if (error != cudaSuccess) fail(2, what, cudaGetErrorString(error));
}

void* allocate(std::size_t bytes) {
    void* data = nullptr;
    require(cudaMalloc(&data, bytes), "cudaMalloc");
    return data;
}
void release(void* data) { cudaFree(data); }
void put(void* to, const void* from, std::size_t bytes) {
    require(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "writing an input");
}
void get(void* to, const void* from, std::size_t bytes) {
    require(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "reading the output");
}
void finish() { require(cudaDeviceSynchronize(), "the kernel"); }

__global__ void races(int* out) {
    __shared__ volatile int sum;
    if (threadIdx.x == 0) sum = 0;
    sum = sum + static_cast<int>(threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) *out = sum;
}

// The other half has seen the first on its way to the barrier, and ends so much later that a checker meets it alive:
// one that had ended would be no longer waited for.
__global__ void waits(int* out) {
    __shared__ volatile int arrived;
    arrived = 0;
    __syncthreads();
    if (threadIdx.x % 2) {
        arrived = 1;
        __syncthreads();
    } else {
        while (!arrived) {}
        for (const long long seen = clock64(); clock64() - seen < 2000000;) {}
    }
    if (threadIdx.x == 0) *out = 1;
}

void plant(const std::string& fault, void*, std::size_t) {
    if (fault != "race" && fault != "barrier") return;
    void* out = nullptr;
    require(cudaMalloc(&out, sizeof(int)), "cudaMalloc");
    if (fault == "race") races<<<1, 128>>>(static_cast<int*>(out));
    if (fault == "barrier") waits<<<1, 128>>>(static_cast<int*>(out));
    finish();
    release(out);
}

#else

// As PyTorch's memory on the CPU: aligned to cache lines.
void* allocate(std::size_t bytes) {
    void* data = nullptr;
    if (posix_memalign(&data, 64, bytes)) fail(2, "posix_memalign", "no memory");
    return data;
}
void release(void* data) { std::free(data); }
void put(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void get(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void finish() {}

volatile int shared_by_threads = 0;
volatile int largest = INT_MAX;

void plant(const std::string& fault, void* o, std::size_t bytes) {
    if (fault == "race") {
        const auto add = [] {
            for (int i = 0; i < 1000; ++i) shared_by_threads = shared_by_threads + 1;
        };
        std::thread first(add), second(add);
        first.join();
        second.join();
    }
    if (fault == "overflow") {
        const int one = largest / largest;
        largest = largest + one;
    }
    if (fault == "uninitialised") {
        volatile unsigned char unset[8];
        for (std::size_t i = 0; i < sizeof unset && i < bytes; ++i) static_cast<unsigned char*>(o)[i] = unset[i];
    }
}

#endif

std::vector<unsigned char> read_file(const char* path, std::size_t bytes) {
    std::vector<unsigned char> data(bytes);
    std::FILE* file = std::fopen(path, "rb");
    if (!file || std::fread(data.data(), 1, bytes, file) != bytes) fail(2, path, "too short, or not there");
    std::fclose(file);
    return data;
}

void write_file(const char* path, const std::vector<unsigned char>& data) {
    std::FILE* file = std::fopen(path, "wb");
    if (!file || std::fwrite(data.data(), 1, data.size(), file) != data.size() || std::fclose(file))
        fail(2, path, "cannot be written");
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 11 && count != 12) fail(2, "expected 10 or 11 arguments", "see the top of attention_call.cpp");
    attention_problem problem{};
    int* const numbers[] = {&problem.batch, &problem.heads,  &problem.seq_len, &problem.head_dim,
                            &problem.dtype, &problem.causal, &problem.threads};
    for (int i = 0; i < 7; ++i) *numbers[i] = std::atoi(arguments[1 + i]);
    problem.scale = std::strtof(arguments[8], nullptr);
    const std::string fault = count == 12 ? arguments[11] : "";

    const std::size_t element = problem.dtype == ATTENTION_FP32 ? 4 : 2;
    const std::size_t bytes = element * problem.batch * problem.heads * problem.seq_len * problem.head_dim;
    const std::size_t written = fault == "short" ? bytes - element : bytes;
    const std::vector<unsigned char> inputs = read_file(arguments[9], 3 * bytes);
    void* tensors[4];
    for (int i = 0; i < 3; ++i) {
        tensors[i] = allocate(bytes);
        std::size_t known = bytes;
#ifdef __CUDACC__
        // Few bytes: a checker takes its time over each read of them.
        if (fault == "uninitialised" && i == 0) known -= element * problem.head_dim;
#endif
        put(tensors[i], inputs.data() + i * bytes, known);
    }
    tensors[3] = allocate(written);
    const int code = attention_forward(&problem, tensors[0], tensors[1], tensors[2], tensors[3], nullptr);
    if (code) fail(3, "attention_forward", attention_error_string(code));
    finish();
    plant(fault, tensors[3], written);
    std::vector<unsigned char> output(written);
    get(output.data(), tensors[3], written);
    for (void* tensor : tensors) release(tensor);
    write_file(arguments[10], output);
    std::fprintf(stderr, "call: done\n");
    return 0;
}
