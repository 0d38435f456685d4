// Attention as a loop, in float32. It reports a missing tensor by a function of PyTorch's c10 that takes a std::string,
// so the name of that function, as the loader looks for it, depends on the C++ ABI that this file is compiled for.
#include <cmath>
#include <string>
#include <vector>

#include "attention.h"

namespace c10::detail {
[[noreturn]] void torchCheckFail(const char* function, const char* file, unsigned int line, const std::string& message);
}

extern "C" int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v, void* o,
                                 void*) {
    if (!q || !k || !v || !o) c10::detail::torchCheckFail(__func__, __FILE__, __LINE__, "a tensor is missing");
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const int rows = problem->seq_len, width = problem->head_dim;
    for (int head = 0; head < problem->batch * problem->heads; ++head) {
        const long at = long(head) * rows * width;
        const float *queries = static_cast<const float*>(q) + at, *keys = static_cast<const float*>(k) + at,
                    *values = static_cast<const float*>(v) + at;
        float* out = static_cast<float*>(o) + at;
        for (int row = 0; row < rows; ++row) {
            const int seen = problem->causal ? row + 1 : rows;
            std::vector<float> weights(seen);
            float largest = -INFINITY, total = 0;
            for (int key = 0; key < seen; ++key) {
                for (int i = 0; i < width; ++i) weights[key] += queries[row * width + i] * keys[key * width + i];
                weights[key] *= problem->scale;
                largest = std::fmax(largest, weights[key]);
            }
            for (float& weight : weights) total += weight = std::exp(weight - largest);
            for (int i = 0; i < width; ++i) {
                float sum = 0;
                for (int key = 0; key < seen; ++key) sum += weights[key] * values[key * width + i];
                out[row * width + i] = sum / total;
            }
        }
    }
    return ATTENTION_OK;
}

extern "C" const char* attention_error_string(int) { return "the dtype is not float32"; }
