// Hands PyTorch tensors to the C interface in attention.h. The only file here that includes PyTorch, kept
// this thin so that what may change between PyTorch versions is kept apart from the kernels.
//
// Knows nothing of a kernel but that interface: one object, compiled by torch.utils.cpp_extension.load once for
// an environment, is linked into the extension of each of its kernels. For CUDA kernels pass -DATTENTION_CUDA=1
// in extra_cflags: the helper itself defines no macro that tells the two apart.
#include "attention.h"

// Not torch/extension.h: it brings all of PyTorch's C++ interface, and four times the compile time.
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#if defined(ATTENTION_CUDA) && ATTENTION_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#else
#include <ATen/Parallel.h>
#endif

#include <climits>
#include <string>

// Only kernels that choose among several ways have it.
extern "C" const char* attention_choice(const attention_problem* problem) __attribute__((weak));

namespace {

int dtype_of(const at::Tensor& q) {
    switch (q.scalar_type()) {
        case at::kHalf: return ATTENTION_FP16;
        case at::kBFloat16: return ATTENTION_BF16;
        case at::kFloat: return ATTENTION_FP32;
        default: TORCH_CHECK(false, "q: expected float16, bfloat16 or float32, got ", q.scalar_type());
    }
}

void check_like(const char* name, const at::Tensor& tensor, const at::Tensor& q) {
    TORCH_CHECK(tensor.sizes() == q.sizes(), name, ": expected the shape of q, ", q.sizes(), ", got ",
                tensor.sizes());
    TORCH_CHECK(tensor.scalar_type() == q.scalar_type(), name, ": expected the dtype of q, ", q.scalar_type(),
                ", got ", tensor.scalar_type());
    TORCH_CHECK(tensor.device() == q.device(), name, ": expected the device of q, ", q.device(), ", got ",
                tensor.device());
    TORCH_CHECK(tensor.is_contiguous(), name, ": expected a contiguous tensor, got strides ",
                tensor.strides(), "; call .contiguous() first");
}

// By address: contiguous slices of one storage may lie side by side.
bool overlap(const at::Tensor& a, const at::Tensor& b) {
    const auto* a_bytes = static_cast<const char*>(a.data_ptr());
    const auto* b_bytes = static_cast<const char*>(b.data_ptr());
    return a_bytes < b_bytes + b.nbytes() && b_bytes < a_bytes + a.nbytes();
}

int extent(const at::Tensor& q, int dimension) {
    TORCH_CHECK(q.size(dimension) <= INT_MAX, "q: dimension ", dimension, " is ", q.size(dimension),
                ", more than the kernel can index");
    return static_cast<int>(q.size(dimension));
}

attention_problem problem_of(const at::Tensor& q, bool causal, double scale) {
    TORCH_CHECK(q.dim() == 4, "q: expected [batch, heads, seq_len, head_dim], got ", q.dim(), " dimensions");
    attention_problem problem{};
    problem.batch = extent(q, 0);
    problem.heads = extent(q, 1);
    problem.seq_len = extent(q, 2);
    problem.head_dim = extent(q, 3);
    problem.dtype = dtype_of(q);
    problem.causal = causal;
    problem.scale = static_cast<float>(scale);
    return problem;
}

// Which way `forward` takes for such a q, in one line; empty where the kernel has only one.
std::string choice(const at::Tensor& q, bool causal, double scale) {
    if (!attention_choice) return "";
#if defined(ATTENTION_CUDA) && ATTENTION_CUDA
    TORCH_CHECK(q.is_cuda(), "q: this extension was built for CUDA, got a tensor on ", q.device());
    const c10::cuda::CUDAGuard guard(q.device());
#endif
    const attention_problem problem = problem_of(q, causal, scale);
    return attention_choice(&problem);
}

// Writes softmax(scale * q k^T + mask) v into out. All four: contiguous [batch, heads, seq_len, head_dim], of
// one dtype, on one device. On CUDA the work is queued on the current stream of that device.
void forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
             bool causal, double scale) {
    check_like("q", q, q);
    check_like("k", k, q);
    check_like("v", v, q);
    check_like("out", out, q);
    for (const at::Tensor* input : {&q, &k, &v})
        TORCH_CHECK(!overlap(*input, out), "out: expected its own memory, got that of an input");

    attention_problem problem = problem_of(q, causal, scale);
    void* stream = nullptr;
#if defined(ATTENTION_CUDA) && ATTENTION_CUDA
    TORCH_CHECK(q.is_cuda(), "q: this extension was built for CUDA, got a tensor on ", q.device());
    const c10::cuda::CUDAGuard guard(q.device());
    stream = c10::cuda::getCurrentCUDAStream().stream();
#else
    TORCH_CHECK(q.is_cpu(), "q: this extension was built for the CPU, got a tensor on ", q.device());
    problem.threads = at::get_num_threads();
#endif
    int code;
    {
        const pybind11::gil_scoped_release released;
        code = attention_forward(&problem, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), stream);
    }
    TORCH_CHECK(code == ATTENTION_OK, "attention_forward: ", attention_error_string(code), " (code ", code,
                ", shape ", q.sizes(), ", ", q.scalar_type(), ", built with ", attention_tunables(), ")");
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "Attention forward: the kernel behind attention.h";
    m.def(
        "forward", &forward, pybind11::arg("q"), pybind11::arg("k"), pybind11::arg("v"), pybind11::arg("out"),
        pybind11::arg("causal"), pybind11::arg("scale"),
        "Writes softmax(scale * q k^T + mask) v into out; all contiguous [batch, heads, seq_len, head_dim].");
    m.def("choice", &choice, pybind11::arg("q"), pybind11::arg("causal"), pybind11::arg("scale"),
          "Which of several ways the kernel takes for such a q, in one line; empty where it has one.");
    m.def(
        "tunables", [] { return std::string(attention_tunables()); },
        "The compile-time choices in this binary, as NAME=value pairs.");
}
