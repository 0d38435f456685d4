// Attention whose scale is a number, or a tensor with one for each head: the caller's choice, kept in a variant.
#include <torch/csrc/utils/pybind.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <c10/util/variant.h>

#include <cmath>

namespace {

using Scale = c10::variant<double, at::Tensor>;

struct Scaled {
    const at::Tensor& q;

    at::Tensor operator()(double scale) const { return q.mul(scale); }
    at::Tensor operator()(const at::Tensor& scales) const { return q.mul(scales.view({1, -1, 1, 1})); }
};

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, const Scale& scale) {
    at::Tensor scores = at::matmul(c10::visit(Scaled{q}, scale), k.transpose(-1, -2));
    if (causal) {
        const at::Tensor later = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu(1);
        scores.masked_fill_(later, -INFINITY);
    }
    return at::matmul(at::softmax(scores, -1), v);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.attr("RETURNS_OUTPUT") = true;
    m.def("forward", [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
        return attention(q, k, v, causal, scale);
    });
    m.def("forward_by_head", [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                                const at::Tensor& scales) { return attention(q, k, v, causal, scales); });
}
