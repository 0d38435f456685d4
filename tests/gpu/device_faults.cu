// A plain attention with one fault in how it meets the device, chosen at compile time. Its numbers are right:
// what a harness must notice is the fault, and nothing else of the process or the device may suffer from it.
//
// FAULT            true cause                                            what must be seen
// NONE             none                                                  right, with cold and hot times
// LEGACY_STREAM    launches on the legacy default stream, not on the     right numbers, wrong all the same: its calls
//                  caller's                                              ran at once while they were captured
// SKIPS_CAPTURE    launches nothing while its stream is captured         right, but no hot time
// SYNCHRONISES     waits for the device in every call, and heeds no      right, but no hot time: the capture
//                  error of that                                         fails, and the next one does not
// ILLEGAL_ADDRESS  writes to an address that is nobody's                 a crash, of its own process alone
// ASSERTS          a device-side assertion fails                         a crash, of its own process alone
// ENDLESS          never ends                                            a time-out; the device answers again
//
// fp16, head_dim up to 128, and rows whose scores fit into 48 KiB. One block computes one query row.
#undef NDEBUG  // assert must be one
#include "attention.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cassert>

#ifndef FAULT_LEGACY_STREAM
#define FAULT_LEGACY_STREAM 0
#endif
#ifndef FAULT_SKIPS_CAPTURE
#define FAULT_SKIPS_CAPTURE 0
#endif
#ifndef FAULT_SYNCHRONISES
#define FAULT_SYNCHRONISES 0
#endif
#ifndef FAULT_ILLEGAL_ADDRESS
#define FAULT_ILLEGAL_ADDRESS 0
#endif
#ifndef FAULT_ASSERTS
#define FAULT_ASSERTS 0
#endif
#ifndef FAULT_ENDLESS
#define FAULT_ENDLESS 0
#endif

namespace device_faults {

constexpr int kThreads = 128;

__device__ volatile int never = 0;  // the compiler cannot know

__device__ void misbehave(__half* o) {
    if (FAULT_ILLEGAL_ADDRESS) *reinterpret_cast<volatile int*>(reinterpret_cast<char*>(o) + (1ull << 46)) = 1;
    if (FAULT_ASSERTS) assert(never != 0);
    while (FAULT_ENDLESS && never == 0) __nanosleep(1000);
}

// Grid: one block per query row, heads in order. q, k, v, o: [heads in all, seq_len, depth].
__global__ void forward(const __half* q, const __half* k, const __half* v, __half* o, int seq_len, int depth,
                        bool causal, float scale) {
    extern __shared__ float scores[];
    const std::size_t head = static_cast<std::size_t>(blockIdx.x / seq_len) * seq_len * depth;
    const int row = static_cast<int>(blockIdx.x % seq_len);
    const int keys = causal ? row + 1 : seq_len;
    q += head + static_cast<std::size_t>(row) * depth, k += head, v += head;
    misbehave(o);
    for (int key = threadIdx.x; key < keys; key += kThreads) {
        float score = 0.0f;
        for (int d = 0; d < depth; ++d)
            score = fmaf(__half2float(q[d]), __half2float(k[static_cast<std::size_t>(key) * depth + d]), score);
        scores[key] = score * scale;
    }
    __syncthreads();
    float top = scores[0], sum = 0.0f;
    for (int key = 1; key < keys; ++key) top = fmaxf(top, scores[key]);
    for (int key = 0; key < keys; ++key) sum += expf(scores[key] - top);
    for (int d = threadIdx.x; d < depth; d += kThreads) {
        float out = 0.0f;
        for (int key = 0; key < keys; ++key)
            out = fmaf(expf(scores[key] - top), __half2float(v[static_cast<std::size_t>(key) * depth + d]), out);
        o[head + static_cast<std::size_t>(row) * depth + d] = __float2half_rn(out / sum);
    }
}

cudaError_t launch(const attention_problem& p, const void* q, const void* k, const void* v, void* o,
                   cudaStream_t stream) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (FAULT_SKIPS_CAPTURE) cudaStreamIsCapturing(stream, &capture);
    if (capture != cudaStreamCaptureStatusNone) return cudaSuccess;
    if (FAULT_LEGACY_STREAM) stream = cudaStreamLegacy;
    const unsigned rows = static_cast<unsigned>(p.batch) * p.heads * p.seq_len;
    forward<<<rows, kThreads, p.seq_len * sizeof(float), stream>>>(
        static_cast<const __half*>(q), static_cast<const __half*>(k), static_cast<const __half*>(v),
        static_cast<__half*>(o), p.seq_len, p.head_dim, p.causal != 0, p.scale);
    const cudaError_t error = cudaGetLastError();
    if (!FAULT_SYNCHRONISES) return error;
    if (cudaStreamSynchronize(stream) != cudaSuccess) cudaGetLastError();
    return cudaSuccess;  // nor of the launches that fail because of it
}

}  // namespace device_faults

extern "C" ATTENTION_EXPORT int attention_forward(const attention_problem* problem, const void* q,
                                                  const void* k, const void* v, void* o, void* stream) {
    if (!problem || !q || !k || !v || !o) return ATTENTION_ERROR_NULL;
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (problem->head_dim > device_faults::kThreads) return ATTENTION_ERROR_HEAD_DIM;
    if (problem->seq_len > 48 * 1024 / static_cast<int>(sizeof(float))) return ATTENTION_ERROR_TOO_LARGE;
    return device_faults::launch(*problem, q, k, v, o, static_cast<cudaStream_t>(stream));
}

extern "C" ATTENTION_EXPORT const char* attention_error_string(int code) {
    if (code > 0) return cudaGetErrorString(static_cast<cudaError_t>(code));
    return code == ATTENTION_OK ? "ok" : "a problem that this kernel does not take";
}

extern "C" ATTENTION_EXPORT const char* attention_tunables(void) { return ""; }
