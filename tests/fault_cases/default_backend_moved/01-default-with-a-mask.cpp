// PyTorch's attention, with the mask as a tensor: one call for causal, padded and full problems alike.
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>

at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    at::Tensor mask = at::zeros({q.size(2), k.size(2)}, q.options());
    if (causal) mask.masked_fill_(at::ones_like(mask).triu(1).to(at::kBool), -INFINITY);
    return at::scaled_dot_product_attention(q, k, v, mask, 0.0, false, scale);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", &forward);
}
