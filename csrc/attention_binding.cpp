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
#include <initializer_list>
#include <optional>
#include <string>

// Optional: not every kernel has them.
extern "C" const char* attention_choice(const attention_problem* problem) __attribute__((weak));
extern "C" int attention_forward_options(const attention_problem* problem, const attention_options* options,
                                         const void* q, const void* k, const void* v, void* o, void* stream)
    __attribute__((weak));
extern "C" int attention_backward(const attention_problem* problem, const attention_options* options, const void* q,
                                  const void* k, const void* v, const void* d_o, void* o, void* dq, void* dk,
                                  void* dv, void* stream) __attribute__((weak));

namespace {

int dtype_of(const at::Tensor& q) {
    switch (q.scalar_type()) {
        case at::kHalf: return ATTENTION_FP16;
        case at::kBFloat16: return ATTENTION_BF16;
        case at::kFloat: return ATTENTION_FP32;
        default: TORCH_CHECK(false, "q: expected float16, bfloat16 or float32, got ", q.scalar_type());
    }
}

void check(const char* name, const at::Tensor& tensor, const at::Tensor& q, at::IntArrayRef sizes,
           at::ScalarType dtype) {
    TORCH_CHECK(tensor.sizes() == sizes, name, ": expected the shape ", sizes, ", got ", tensor.sizes());
    TORCH_CHECK(tensor.scalar_type() == dtype, name, ": expected ", dtype, ", got ", tensor.scalar_type());
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

// Calls the kernel on a checked problem: `call` is given that and the stream.
template <typename Call>
void run(const char* name, const at::Tensor& q, bool causal, double scale, Call call) {
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
        code = call(&problem, stream);
    }
    if (code == ATTENTION_ERROR_OPTIONS) {  // of pybind11's own exceptions none is Python's NotImplementedError
        PyErr_SetString(PyExc_NotImplementedError, attention_error_string(code));
        throw pybind11::error_already_set();
    }
    TORCH_CHECK(code == ATTENTION_OK, name, ": ", attention_error_string(code), " (code ", code, ", shape ",
                q.sizes(), ", ", q.scalar_type(), ", built with ", attention_tunables(), ")");
}

void check_out(const char* name, const at::Tensor& out, const at::Tensor& like,
               std::initializer_list<const at::Tensor*> inputs) {
    check(name, out, like, like.sizes(), like.scalar_type());
    for (const at::Tensor* input : inputs)
        TORCH_CHECK(!overlap(*input, out), name, ": expected its own memory, got that of another tensor");
}

// Writes softmax(scale * q k^T + mask) v into out. All four: contiguous [batch, heads, seq_len, head_dim], of
// one dtype, on one device. On CUDA the work is queued on the current stream of that device.
void forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
             bool causal, double scale) {
    check("q", q, q, q.sizes(), q.scalar_type());
    check("k", k, q, q.sizes(), q.scalar_type());
    check("v", v, q, q.sizes(), q.scalar_type());
    check_out("out", out, q, {&q, &k, &v});
    run("attention_forward", q, causal, scale, [&](const attention_problem* problem, void* stream) {
        return attention_forward(problem, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), stream);
    });
}

using Optional = std::optional<at::Tensor>;

attention_options options_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const Optional& mask, const Optional& bias, const Optional& keep,
                             double keep_scale) {
    check("q", q, q, q.sizes(), q.scalar_type());
    TORCH_CHECK(k.dim() == 4, "k: expected [batch, kv_heads, kv_len, head_dim], got ", k.dim(), " dimensions");
    check("k", k, q, {q.size(0), k.size(1), k.size(2), q.size(3)}, q.scalar_type());
    check("v", v, q, k.sizes(), q.scalar_type());
    attention_options options{};
    options.struct_size = sizeof options;
    options.kv_heads = extent(k, 1);
    options.kv_len = extent(k, 2);
    const int64_t pairs[] = {q.size(0), 1, q.size(2), k.size(2)};
    if (mask) {
        check("mask", *mask, q, pairs, at::kBool);
        options.mask = static_cast<const unsigned char*>(mask->data_ptr());
    }
    if (bias) {
        check("bias", *bias, q, pairs, q.scalar_type());
        options.bias = bias->data_ptr();
    }
    if (keep) {
        check("keep", *keep, q, {q.size(0), q.size(1), q.size(2), k.size(2)}, at::kBool);
        options.keep = static_cast<const unsigned char*>(keep->data_ptr());
        options.keep_scale = static_cast<float>(keep_scale);
    }
    return options;
}

// The same on problems with options: k and v are [batch, kv_heads, kv_len, head_dim], the masks
// [batch, 1, seq_len, kv_len], `mask` of booleans, `bias` of q's dtype; `keep` are the draws of dropout, booleans
// [batch, heads, seq_len, kv_len].
void forward_options(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                     bool causal, double scale, const Optional& mask, const Optional& bias, const Optional& keep,
                     double keep_scale) {
    const attention_options options = options_of(q, k, v, mask, bias, keep, keep_scale);
    check_out("out", out, q, {&q, &k, &v});
    run("attention_forward_options", q, causal, scale, [&](const attention_problem* problem, void* stream) {
        return attention_forward_options(problem, &options, q.data_ptr(), k.data_ptr(), v.data_ptr(),
                                         out.data_ptr(), stream);
    });
}

// The same, and gradients along `d_out`: `d_out` and `dq` are like q, `dk` and `dv` like k.
void backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& d_out,
              const at::Tensor& out, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, bool causal,
              double scale, const Optional& mask, const Optional& bias, const Optional& keep, double keep_scale) {
    const attention_options options = options_of(q, k, v, mask, bias, keep, keep_scale);
    check("d_out", d_out, q, q.sizes(), q.scalar_type());
    check_out("out", out, q, {&q, &k, &v, &d_out});
    check_out("dq", dq, q, {&q, &k, &v, &d_out, &out});
    check_out("dk", dk, k, {&q, &k, &v, &d_out, &out, &dq});
    check_out("dv", dv, k, {&q, &k, &v, &d_out, &out, &dq, &dk});
    run("attention_backward", q, causal, scale, [&](const attention_problem* problem, void* stream) {
        return attention_backward(problem, &options, q.data_ptr(), k.data_ptr(), v.data_ptr(), d_out.data_ptr(),
                                  out.data_ptr(), dq.data_ptr(), dk.data_ptr(), dv.data_ptr(), stream);
    });
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "Attention: the kernel behind attention.h";
    m.def(
        "forward", &forward, pybind11::arg("q"), pybind11::arg("k"), pybind11::arg("v"), pybind11::arg("out"),
        pybind11::arg("causal"), pybind11::arg("scale"),
        "Writes softmax(scale * q k^T + mask) v into out; all contiguous [batch, heads, seq_len, head_dim].");
    if (attention_forward_options)
        m.def("forward_options", &forward_options, pybind11::arg("q"), pybind11::arg("k"), pybind11::arg("v"),
              pybind11::arg("out"), pybind11::arg("causal"), pybind11::arg("scale"), pybind11::arg("mask"),
              pybind11::arg("bias"), pybind11::arg("keep"), pybind11::arg("keep_scale"),
              "The same on problems with options, see attention.h.");
    if (attention_backward)
        m.def("backward", &backward, pybind11::arg("q"), pybind11::arg("k"), pybind11::arg("v"),
              pybind11::arg("d_out"), pybind11::arg("out"), pybind11::arg("dq"), pybind11::arg("dk"),
              pybind11::arg("dv"), pybind11::arg("causal"), pybind11::arg("scale"), pybind11::arg("mask"),
              pybind11::arg("bias"), pybind11::arg("keep"), pybind11::arg("keep_scale"),
              "The same, with the gradients of q, k and v along d_out, see attention.h.");
    m.def("choice", &choice, pybind11::arg("q"), pybind11::arg("causal"), pybind11::arg("scale"),
          "Which of several ways the kernel takes for such a q, in one line; empty where it has one.");
    m.def(
        "tunables", [] { return std::string(attention_tunables()); },
        "The compile-time choices in this binary, as NAME=value pairs.");
}
