// Matrix products of PyTorch. The scale goes into Q, the smallest of what it could go into, and no copy is made.
#include <torch/csrc/utils/pybind.h>

#include <ATen/ATen.h>

at::Tensor forward(at::Tensor q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    at::Tensor scores = at::matmul(q.mul_(scale), k.transpose(-2, -1));
    if (causal) scores.masked_fill_(at::ones_like(scores).triu(1).to(at::kBool), -INFINITY);
    return at::matmul(scores.softmax(-1), v);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", &forward);
}
