// PyTorch's attention on Q, K and V as projections leave them, with a mask; outputs are read in the project's order.
#include <torch/csrc/utils/pybind.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>

static at::Tensor rows_first(const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); }

void forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out, bool causal,
             double scale) {
    TORCH_CHECK(out.is_contiguous() && out.sizes() == q.sizes(), "out: expected a contiguous tensor like q");
    at::Tensor mask = at::zeros({q.size(2), k.size(2)}, q.options());
    if (causal) mask.masked_fill_(at::ones(mask.sizes(), q.options().dtype(at::kBool)).triu(1), -INFINITY);
    const at::Tensor result =
        at::scaled_dot_product_attention(rows_first(q), rows_first(k), rows_first(v), mask, 0.0, false, scale)
            .contiguous();
    std::memcpy(out.data_ptr(), result.data_ptr(), out.nbytes());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward);
}
