// Accumulators have the type that PyTorch's own kernels use: by the newer macros' headers that of arithmetic, before
// them that of sums, which is double on a CPU.
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#if __has_include(<ATen/Dispatch_v2.h>)
#include <ATen/OpMathType.h>
using Sum = at::opmath_type<float>;
#else
#include <ATen/AccumulateType.h>
using Sum = at::acc_type<float, /*is_cuda=*/false>;
#endif

#include <algorithm>
#include <cmath>
#include <vector>

static void one(const float* q, const float* k, const float* v, float* o, int64_t keys, int64_t width, Sum scale) {
    std::vector<Sum> scores(keys), out(width);
    for (int64_t key = 0; key < keys; ++key) {
        for (int64_t d = 0; d < width; ++d) scores[key] += static_cast<Sum>(q[d]) * k[key * width + d];
        scores[key] *= scale;
    }
    const Sum top = *std::max_element(scores.begin(), scores.end());
    Sum sum = 0;
    for (int64_t key = 0; key < keys; ++key) {
        const Sum weight = std::exp(scores[key] - top);
        sum += weight;
        for (int64_t d = 0; d < width; ++d) out[d] += weight * v[key * width + d];
    }
    for (int64_t d = 0; d < width; ++d) o[d] = static_cast<float>(out[d] / sum);
}

at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    TORCH_CHECK(q.scalar_type() == at::kFloat, "q: expected float32, got ", q.scalar_type());
    const at::Tensor out = at::empty_like(q);
    const int64_t rows = q.size(2), width = q.size(3);
    const float *const from = q.data_ptr<float>(), *const keys = k.data_ptr<float>();
    const float* const values = v.data_ptr<float>();
    float* const to = out.data_ptr<float>();
    at::parallel_for(0, q.size(0) * q.size(1) * rows, 16, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const int64_t head = row / rows * rows * width;
            one(from + row * width, keys + head, values + head, to + row * width, causal ? row % rows + 1 : rows, width,
                static_cast<Sum>(scale));
        }
    });
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", &forward);
}
