// Matrix products where the processor has wide registers, a row at a time where it has none; PyTorch knows which.
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>
#include <ATen/Version.h>

#include <limits>

namespace {

at::Tensor all_at_once(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
    at::Tensor scores = at::matmul(q, k.transpose(-1, -2));
    if (causal) {
        const at::Tensor hidden = at::ones({q.size(-2), k.size(-2)}, at::kBool).triu(1);
        scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
    }
    return at::matmul(at::softmax(scores, -1), v);
}

at::Tensor row_by_row(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
    const int64_t rows = q.size(-2);
    at::Tensor out = at::empty_like(q);
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t first = causal ? row : 0;
        const at::Tensor keys = k.narrow(-2, first, rows - first), values = v.narrow(-2, first, rows - first);
        const at::Tensor weights = at::softmax(at::matmul(q.narrow(-2, row, 1), keys.transpose(-1, -2)), -1);
        out.narrow(-2, row, 1).copy_(at::matmul(weights, values));
    }
    return out;
}

}  // namespace

at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    const bool wide = at::get_cpu_capability().rfind("AVX", 0) == 0;  // AVX2, AVX512
    return (wide ? all_at_once : row_by_row)(q * scale, k, v, causal);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", &forward);
}
