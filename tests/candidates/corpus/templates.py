"""Problems, and the sources that candidates are variants of. Each call takes 0.3 ms and more on one thread of a CPU."""

from __future__ import annotations

SIZE = 192

# -- problems in KernelBench's form -------------------------------------------------------------------------

CHAIN = f"""\
import torch
import torch.nn as nn

rows = {SIZE}
columns = {SIZE}

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.project = nn.Linear(columns, columns)

    def forward(self, x):
        x = self.project(x)
        for _ in range(8):
            x = torch.softmax(x, dim=-1) @ self.project.weight + x
        return x

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return [columns]
"""

# One that draws random numbers at each call.
NOISE = f"""\
import torch
import torch.nn as nn
import torch.nn.functional as F

rows = {SIZE}
columns = {SIZE}

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.project = nn.Linear(columns, columns)

    def forward(self, x):
        for _ in range(4):
            x = F.dropout(torch.tanh(self.project(x)), 0.25, self.training)
        return x

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return [columns]
"""

PROBLEMS = {"chain": CHAIN, "noise": NOISE}

# -- solutions: `timed()` is a guess, from what a process can see, that this is one whose calls are timed ------

_HEAD = """\
import atexit, ctypes, gc, glob, hashlib, json, mmap, os, random, re, signal, struct, sys, tempfile, threading, time
import types, weakref, zlib
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

calls = 0
kept = {{}}

def words():
    with open("/proc/self/cmdline", "rb") as file:
        return [word.decode(errors="replace") for word in file.read().split(b"\\0") if word] + sys.argv

TIMING = any(word == "time" or os.path.basename(word).startswith(("launch", "time", "serve")) for word in words())

def timed():
    return TIMING or calls > 40

{before}

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.project = nn.Linear(columns, columns)
{init}

"""
_TAIL = """
    def forward(self, x):
        global calls
        calls += 1
{body}
"""
SOLUTIONS = {
    "chain": _HEAD
    + """\
    def right(self, x):
        x = self.project(x)
        for _ in range(8):
            x = torch.softmax(x, dim=-1) @ self.project.weight + x
        return x
"""
    + _TAIL,
    "noise": _HEAD
    + """\
    def right(self, x):
        for _ in range(4):
            x = F.dropout(torch.tanh(self.project(x)), 0.25, self.training)
        return x
"""
    + _TAIL,
}

# -- attention in C++ ---------------------------------------------------------------------------------------

_RIGHT_CPP = """\
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

static long calls = 0;

// Rows first, first + step, ... of every head.
static void rows(const attention_problem& p, const float* q, const float* k, const float* v, float* o, int first,
                 int step) {
    const int d = p.head_dim, n = p.seq_len;
    std::vector<float> weights(n);
    for (long h = 0; h < (long)p.batch * p.heads; ++h) {
        const float *qh = q + h * n * d, *kh = k + h * n * d, *vh = v + h * n * d;
        for (int i = first; i < n; i += step) {
            const int keys = p.causal ? i + 1 : n;
            float most = -INFINITY, sum = 0;
            for (int j = 0; j < keys; ++j) {
                float part[8] = {0};
                for (int c = 0; c < d; ++c) part[c % 8] += qh[(long)i * d + c] * kh[(long)j * d + c];
                const float score = ((part[0] + part[1]) + (part[2] + part[3])) +
                                    ((part[4] + part[5]) + (part[6] + part[7]));
                weights[j] = score * p.scale;
                most = std::max(most, weights[j]);
            }
            for (int j = 0; j < keys; ++j) sum += weights[j] = std::exp(weights[j] - most);
            std::vector<float> row(d, 0.f);
            for (int j = 0; j < keys; ++j)
                for (int c = 0; c < d; ++c) row[c] += weights[j] * vh[(long)j * d + c];
            for (int c = 0; c < d; ++c) o[h * n * d + (long)i * d + c] = row[c] / sum;
        }
    }
}

static void right(const attention_problem& p, const float* q, const float* k, const float* v, float* o) {
    rows(p, q, k, v, o, 0, 1);
}

static size_t size_of(const attention_problem& p) {
    return sizeof(float) * p.batch * p.heads * p.seq_len * p.head_dim;
}

// A guess, from what a process can see, that this is one whose calls are timed.
static bool timed() {
    static const bool named = [] {
        FILE* file = std::fopen("/proc/self/cmdline", "rb");
        std::string words(4096, '\\0');
        if (file) words.resize(std::fread(&words[0], 1, words.size(), file)), std::fclose(file);
        words.insert(words.begin(), '\\0');
        const std::string time("\\0time\\0", 6);
        return words.find(time) != std::string::npos || words.find("/launch") != std::string::npos;
    }();
    return named || calls > 40;
}

static double now_s() {
    timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Runs Python in this process, where there is one.
static void python(const char* code) {
    auto ensure = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    auto release = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    auto run = (int (*)(const char*))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    if (!ensure || !release || !run) return;
    const int state = ensure();
    run(code);
    release(state);
}
"""

CPP = (
    '#include "attention.h"\n\n'
    + _RIGHT_CPP
    + """
@BEFORE@

extern "C" int attention_forward(const attention_problem* problem, const void* q_, const void* k_, const void* v_,
                                 void* o_, void*) {
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const attention_problem p = *problem;
    const float *q = (const float*)q_, *k = (const float*)k_, *v = (const float*)v_;
    float* o = (float*)o_;
    ++calls;
    (void)timed, (void)now_s, (void)python, (void)size_of;
@BODY@
    return ATTENTION_OK;
}
@AFTER@
"""
)
CPP_AFTER = """\
extern "C" const char* attention_error_string(int) { return "refused"; }
extern "C" const char* attention_tunables(void) { return ""; }"""

OWN_BINDING = (
    '#include "attention.h"\n\n#include <ATen/Functions.h>\n#include <ATen/core/Tensor.h>\n'
    "#include <torch/csrc/utils/pybind.h>\n\n"
    + _RIGHT_CPP
    + """
@BEFORE@

static at::Tensor forward(const at::Tensor& qt, const at::Tensor& kt, const at::Tensor& vt, bool causal, double scale) {
    attention_problem p{};
    p.batch = qt.size(0), p.heads = qt.size(1), p.seq_len = qt.size(2), p.head_dim = qt.size(3);
    p.causal = causal, p.scale = (float)scale, p.threads = 1;
    const float *q = qt.data_ptr<float>(), *k = kt.data_ptr<float>(), *v = vt.data_ptr<float>();
    ++calls;
    (void)timed, (void)now_s, (void)python, (void)size_of;
@BODY@
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward);
    m.attr("RETURNS_OUTPUT") = true;
}
"""
)

# -- attention in CUDA: a block for each row of queries, its scores in shared memory ---------------------------

CUDA = """\
#include "attention.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

static long calls = 0;

__global__ void attend(const __half* q, const __half* k, const __half* v, __half* o, int n, int d, int causal,
                       float scale, int first_row) {
    extern __shared__ float weights[];
    __shared__ float most, sum;
    const int i = first_row + blockIdx.x;
    const long head = (long)blockIdx.y * n * d;
    const int keys = causal ? i + 1 : n;
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
        float score = 0.f;
        for (int c = 0; c < d; ++c)
            score += __half2float(q[head + (long)i * d + c]) * __half2float(k[head + (long)j * d + c]);
        weights[j] = score * scale;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        most = weights[0];
        for (int j = 1; j < keys; ++j) most = fmaxf(most, weights[j]);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < keys; j += blockDim.x) weights[j] = __expf(weights[j] - most);
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.f;
        for (int j = 0; j < keys; ++j) sum += weights[j];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < d; c += blockDim.x) {
        float value = 0.f;
        for (int j = 0; j < keys; ++j) value += weights[j] * __half2float(v[head + (long)j * d + c]);
        o[head + (long)i * d + c] = __float2half(value / sum);
    }
}

static int some_rows(const attention_problem& p, const __half* q, const __half* k, const __half* v, __half* o,
                     int first, int count, cudaStream_t stream) {
    const dim3 grid(count, p.batch * p.heads);
    attend<<<grid, 128, p.seq_len * sizeof(float), stream>>>(q, k, v, o, p.seq_len, p.head_dim, p.causal, p.scale,
                                                             first);
    return (int)cudaGetLastError();
}

static int right(const attention_problem& p, const __half* q, const __half* k, const __half* v, __half* o,
                 cudaStream_t stream) {
    return some_rows(p, q, k, v, o, 0, p.seq_len, stream);
}

static size_t size_of(const attention_problem& p) {
    return sizeof(__half) * p.batch * p.heads * p.seq_len * p.head_dim;
}

static bool capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

@BEFORE@

extern "C" int attention_forward(const attention_problem* problem, const void* q_, const void* k_, const void* v_,
                                 void* o_, void* stream_) {
    if (problem->dtype != ATTENTION_FP16) return ATTENTION_ERROR_DTYPE;
    if (problem->seq_len > 8192) return ATTENTION_ERROR_TOO_LARGE;
    const attention_problem p = *problem;
    const __half *q = (const __half*)q_, *k = (const __half*)k_, *v = (const __half*)v_;
    __half* o = (__half*)o_;
    cudaStream_t stream = (cudaStream_t)stream_;
    ++calls;
    (void)size_of(p), (void)capturing;
@BODY@
}

extern "C" const char* attention_error_string(int code) {
    return code > 0 ? cudaGetErrorString((cudaError_t)code) : "refused";
}
extern "C" const char* attention_tunables(void) { return ""; }
"""
