// A stand-alone program around a kernel's C entry point, for compute-sanitizer: no Python, no PyTorch, and
// every tensor in an allocation of exactly its own size, so that one element too far is out of bounds (with memcheck's
// --padding, for allocations lie side by side).
//
//     nvcc -I csrc csrc/probes/attention_check.cu csrc/attention_scalar.cu -o check
//     compute-sanitizer --tool racecheck --error-exitcode 9 ./check
//
// It runs every dtype and head_dim, causal and not, with a last tile that is not full, each twice, and compares
// with float64 on the host. Exit status 0: all correct and the same bits twice; 1: not; 2: it could not run.
//
// --short   plants a fault that memcheck must find: the output's allocation is one element too small
// --unset   plants one that initcheck must find: the last row of Q is never written (few bytes: each read costs it time)
// --once    one call of each problem, of one head, and no comparison: for a tool on many settings
#include "attention.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void require(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(2);
}

// An array on the device, of exactly its own size.
class Tensor {
public:
    explicit Tensor(std::size_t bytes) : bytes_(bytes) { require(cudaMalloc(&data_, bytes), "cudaMalloc"); }
    ~Tensor() { cudaFree(data_); }
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;

    void* data() { return data_; }
    // All but the last `left_out` bytes.
    void write(const void* from, std::size_t left_out = 0) {
        require(cudaMemcpy(data_, from, bytes_ - left_out, cudaMemcpyHostToDevice), "write");
    }
    void read(void* to) { require(cudaMemcpy(to, data_, bytes_, cudaMemcpyDeviceToHost), "read"); }

private:
    void* data_ = nullptr;
    std::size_t bytes_;
};

std::size_t size_of(int dtype) { return dtype == ATTENTION_FP32 ? 4 : 2; }

// Stores `value` rounded to `dtype`, and returns what was stored.
double store(int dtype, void* at, double value) {
    if (dtype == ATTENTION_FP32) {
        const float stored = static_cast<float>(value);
        std::memcpy(at, &stored, sizeof stored);
        return stored;
    }
    if (dtype == ATTENTION_FP16) {
        const __half stored = __float2half(static_cast<float>(value));
        std::memcpy(at, &stored, sizeof stored);
        return __half2float(stored);
    }
    const __nv_bfloat16 stored = __float2bfloat16(static_cast<float>(value));
    std::memcpy(at, &stored, sizeof stored);
    return __bfloat162float(stored);
}

double fetch(int dtype, const void* at) {
    if (dtype == ATTENTION_FP32) {
        float stored;
        std::memcpy(&stored, at, sizeof stored);
        return stored;
    }
    std::uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return dtype == ATTENTION_FP16 ? __half2float(__ushort_as_half(bits)) : __bfloat162float(__ushort_as_bfloat16(bits));
}

// The sum of four uniforms of a linear congruential generator, about normal.
double deviate(std::uint32_t& state) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += (state = state * 1664525u + 1013904223u) / 4294967296.0 - 0.5;
    return sum * 1.7320508075688772;
}

// What rounding alone may cost, in relative terms: half an ulp of a number of the type, and fp32 tiles, sums and exp2f.
double half_ulp(int dtype) { return dtype == ATTENTION_FP32 ? 0 : dtype == ATTENTION_FP16 ? 0x1p-11 : 0x1p-8; }
constexpr double kFloat = 4e-6;

// Largest error of one head, in float64, over what rounding may cost: half an ulp of the output at a row's largest
// value, and where the kernel multiplies weights of 16 bits with V half an ulp of each of them.
double error_of_head(const attention_problem& p, const double* q, const double* k, const double* v,
                     const double* o) {
    const int rows = p.seq_len, width = p.head_dim;
    double worst = 0;
    std::vector<double> weights(rows), exact(width);
    for (int i = 0; i < rows; ++i) {
        const int keys = p.causal ? i + 1 : rows;
        double most = -INFINITY, sum = 0;
        for (int j = 0; j < keys; ++j) {
            double score = 0;
            for (int d = 0; d < width; ++d) score += q[i * width + d] * k[j * width + d];
            weights[j] = score * p.scale;
            most = std::fmax(most, weights[j]);
        }
        for (int j = 0; j < keys; ++j) sum += weights[j] = std::exp(weights[j] - most);
        double largest = 0, summed = 0, error = 0;
        for (int d = 0; d < width; ++d) {
            double size = 0;
            exact[d] = 0;
            for (int j = 0; j < keys; ++j) {
                const double part = weights[j] / sum * v[j * width + d];
                exact[d] += part, size += std::fabs(part);
            }
            largest = std::fmax(largest, std::fabs(exact[d])), summed = std::fmax(summed, size);
        }
        const double limit = half_ulp(p.dtype) * (largest + summed) + kFloat * largest;
        for (int d = 0; d < width; ++d) {
            const double difference = std::fabs(o[i * width + d] - exact[d]);
            error = std::isnan(difference) ? INFINITY : std::fmax(error, difference);
        }
        worst = std::fmax(worst, error / limit);
    }
    return worst;
}

bool check(const attention_problem& p, bool too_short, bool unset, bool once) {
    const std::size_t head = static_cast<std::size_t>(p.seq_len) * p.head_dim, count = p.batch * p.heads * head;
    const std::size_t size = size_of(p.dtype);
    std::vector<unsigned char> bytes(count * size), again(count * size);
    std::vector<double> values[4];
    Tensor q(count * size), k(count * size), v(count * size), o(count * size - (too_short ? size : 0));
    Tensor* inputs[3] = {&q, &k, &v};
    std::uint32_t state = 1;
    for (int t = 0; t < 3; ++t) {
        values[t].resize(count);
        for (std::size_t i = 0; i < count; ++i) values[t][i] = store(p.dtype, &bytes[i * size], deviate(state));
        inputs[t]->write(bytes.data(), unset && t == 0 ? p.head_dim * size_of(p.dtype) : 0);
    }
    for (auto* result : {&bytes, &again}) {
        const int code = attention_forward(&p, q.data(), k.data(), v.data(), o.data(), nullptr);
        if (code == ATTENTION_ERROR_DTYPE && p.dtype == ATTENTION_FP32) return true;  // tensor cores take none
        if (code) {
            std::fprintf(stderr, "%s\n", attention_error_string(code));
            std::exit(2);
        }
        require(cudaDeviceSynchronize(), "the kernel");
        if (!too_short) o.read(result->data());
        if (once) break;
    }
    if (too_short || unset || once) return true;
    values[3].resize(count);
    for (std::size_t i = 0; i < count; ++i) values[3][i] = fetch(p.dtype, &bytes[i * size]);
    double error = 0;
    for (int h = 0; h < p.batch * p.heads; ++h)
        error = std::fmax(error, error_of_head(p, &values[0][h * head], &values[1][h * head], &values[2][h * head],
                                               &values[3][h * head]));
    const bool same = bytes == again, fine = same && error <= 1;
    std::printf("dtype %d head_dim %3d seq_len %3d causal %d: error %.2f of what rounding may cost%s\n", p.dtype,
                p.head_dim, p.seq_len, p.causal, error, same ? "" : ", other bits the second time");
    return fine;
}

}  // namespace

int main(int count, char** arguments) {
    const bool too_short = count > 1 && !std::strcmp(arguments[1], "--short");
    const bool unset = count > 1 && !std::strcmp(arguments[1], "--unset");
    const bool once = count > 1 && !std::strcmp(arguments[1], "--once");
    if (count > 2 || (count == 2 && !too_short && !unset && !once)) {
        std::fprintf(stderr, "usage: %s [--short | --unset | --once]\n", arguments[0]);
        return 2;
    }
    std::printf("%s\n", attention_tunables());
    bool fine = true;
    for (int dtype : {ATTENTION_FP16, ATTENTION_BF16, ATTENTION_FP32})
        for (int head_dim : {64, 128})
            for (int causal : {0, 1})
                fine &= check({1, once ? 1 : 2, 130, head_dim, dtype, causal, 0,
                               1 / std::sqrt(static_cast<float>(head_dim))},
                              too_short, unset, once);
    return fine ? 0 : 1;
}
