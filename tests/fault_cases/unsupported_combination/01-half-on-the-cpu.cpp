// PyTorch's attention behind the project's interface.
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>

at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal, scale);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", &forward);
}
