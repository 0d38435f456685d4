"""`kernel-matrix new`: a template that is correct as it stands, and a matrix file for it alone."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from harness.cli.init import DEVICES, IGNORE, IGNORED, WORKLOADS, Found, kernel_name, write_missing
from harness.cli.options import Parser
from harness.config.matrix import parse_matrix
from harness.errors import DONE, InputError
from harness.gpu import gpus
from harness.typed import typed

HEAD = """\
# What `kernel-matrix matrix --matrix {file}` compares. By default: PyTorch 2.1.0 and 2.5.0 for CUDA 12.1.
kernels:
"""
CPU = """\
// o = softmax(scale * q k^T) v, one query row after the other: a start that is right, and slow.
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

extern "C" int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v, void* o,
                                 void* /*stream*/) {
    if (problem->dtype != ATTENTION_FP32) return ATTENTION_ERROR_DTYPE;
    const std::size_t rows = problem->seq_len, width = problem->head_dim;
    std::vector<float> weights(rows);
    for (std::size_t head = 0; head < std::size_t(problem->batch) * problem->heads; ++head) {
        // Of one batch entry and head: [seq_len, head_dim].
        const float* queries = static_cast<const float*>(q) + head * rows * width;
        const float* keys = static_cast<const float*>(k) + head * rows * width;
        const float* values = static_cast<const float*>(v) + head * rows * width;
        float* out = static_cast<float*>(o) + head * rows * width;
        for (std::size_t row = 0; row < rows; ++row) {
            const std::size_t seen = problem->causal ? row + 1 : rows;
            float largest = -INFINITY, sum = 0;
            for (std::size_t key = 0; key < seen; ++key) {
                float score = 0;
                for (std::size_t i = 0; i < width; ++i) score += queries[row * width + i] * keys[key * width + i];
                weights[key] = problem->scale * score;
                largest = std::max(largest, weights[key]);
            }
            for (std::size_t key = 0; key < seen; ++key) sum += weights[key] = std::exp(weights[key] - largest);
            for (std::size_t i = 0; i < width; ++i) {
                float total = 0;
                for (std::size_t key = 0; key < seen; ++key) total += weights[key] * values[key * width + i];
                out[row * width + i] = total / sum;
            }
        }
    }
    return ATTENTION_OK;
}

extern "C" const char* attention_error_string(int code) {
    if (code == ATTENTION_ERROR_DTYPE) return "it takes float32 alone";
    return code ? "unknown error code" : "ok";
}

// The choices in this binary, as "NAME=value NAME=value": those of `tunables` in the matrix file.
extern "C" const char* attention_tunables(void) { return ""; }
"""
CUDA = """\
// o = softmax(scale * q k^T) v, a thread for each query row, with an online softmax: a start that is right, and slow.
#include "attention.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

constexpr int THREADS = 64, MOST_WIDTH = 128;

__device__ float as_float(float x) { return x; }
__device__ float as_float(__half x) { return __half2float(x); }
__device__ void store(float x, float* to) { *to = x; }
__device__ void store(float x, __half* to) { *to = __float2half(x); }

// Tensors are [batch * heads, rows, width]. Grid: x over the rows, y over batch * heads.
template <typename T>
__global__ void attention(const T* q, const T* k, const T* v, T* o, int rows, int width, bool causal, float scale) {
    const int row = blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    const size_t head = size_t(blockIdx.y) * rows * width;
    const T* query = q + head + size_t(row) * width;
    float out[MOST_WIDTH], largest = -INFINITY, sum = 0.0f;
    for (int i = 0; i < width; ++i) out[i] = 0.0f;
    const int seen = causal ? row + 1 : rows;
    for (int key = 0; key < seen; ++key) {
        float score = 0.0f;
        for (int i = 0; i < width; ++i) score += as_float(query[i]) * as_float(k[head + size_t(key) * width + i]);
        score *= scale;
        const float now = fmaxf(largest, score);
        const float before = expf(largest - now), weight = expf(score - now);
        sum = sum * before + weight;
        for (int i = 0; i < width; ++i)
            out[i] = out[i] * before + weight * as_float(v[head + size_t(key) * width + i]);
        largest = now;
    }
    for (int i = 0; i < width; ++i) store(out[i] / sum, o + head + size_t(row) * width + i);
}

template <typename T>
int launch(const attention_problem& problem, const void* q, const void* k, const void* v, void* o, void* stream) {
    const dim3 grid((problem.seq_len + THREADS - 1) / THREADS, problem.batch * problem.heads);
    attention<T><<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(o),
        problem.seq_len, problem.head_dim, problem.causal != 0, problem.scale);
    return cudaGetLastError();
}

}  // namespace

extern "C" int attention_forward(const attention_problem* problem, const void* q, const void* k, const void* v, void* o,
                                 void* stream) {
    if (problem->head_dim > MOST_WIDTH) return ATTENTION_ERROR_HEAD_DIM;
    if (problem->batch * problem->heads > 65535) return ATTENTION_ERROR_TOO_LARGE;
    if (problem->dtype == ATTENTION_FP32) return launch<float>(*problem, q, k, v, o, stream);
    if (problem->dtype == ATTENTION_FP16) return launch<__half>(*problem, q, k, v, o, stream);
    return ATTENTION_ERROR_DTYPE;
}

extern "C" const char* attention_error_string(int code) {
    if (code > 0) return cudaGetErrorString(static_cast<cudaError_t>(code));
    if (code == ATTENTION_ERROR_HEAD_DIM) return "it takes a head_dim of at most 128";
    if (code == ATTENTION_ERROR_DTYPE) return "it takes float16 and float32 alone";
    return code == ATTENTION_ERROR_TOO_LARGE ? "more than 65535 heads" : code ? "unknown error code" : "ok";
}

// The choices in this binary, as "NAME=value NAME=value": those of `tunables` in the matrix file.
extern "C" const char* attention_tunables(void) { return ""; }
"""
PROBLEM = '''\
"""The problem: what is computed, and on which inputs. {solution} computes the same, faster."""

import torch

ROWS, WIDTH = 256, 512


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width))

    def forward(self, x):
        """[rows, width] to the same shape: every row divided by its root mean square, and weighted."""
        return x / x.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt() * self.weight


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
'''
SOLUTION = '''\
"""The code under test: what {problem} computes, with the same arguments and names of weights."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * self.weight
'''


def add_options(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="to write: mine.cu, mine.cpp or mine.py")


def run(options: argparse.Namespace) -> int:
    print("\n".join(new(Path.cwd(), options.file)))
    return DONE


def new(folder: Path, file: Path) -> list[str]:
    """Write the template and its matrix file. Returns what was written, in lines.

    InputError where a file is there already, or `file` is outside of the folder or of another kind.
    """
    if file.suffix not in (*DEVICES, ".py"):
        raise InputError(f"{file}: no kind of kernel", "name a .cu, .cpp or .py file, such as mine.cu")
    if file.is_absolute() or ".." in file.parts:
        raise InputError(f"{file}: not inside this folder", "start in the project's folder, and name a path below it")
    kernel = Found(name=kernel_name(file.stem))
    matrix = f"{kernel.name}.yaml"
    if file.suffix == ".py":
        problem = file.with_name(f"{file.stem}_problem.py")
        kernel.problem, kernel.model_new = problem.as_posix(), file.as_posix()
        texts = {
            kernel.problem: PROBLEM.format(solution=file.name),
            kernel.model_new: SOLUTION.format(problem=problem.name),
        }
    else:
        device = DEVICES[file.suffix]
        kernel.sources[device] = file.as_posix()
        texts = {file.as_posix(): CUDA if device == "cuda" else CPU}
    lines = [HEAD.format(file=matrix).rstrip("\n"), *kernel.lines]
    texts[matrix] = "\n".join(lines) + "\n" + ("" if kernel.problem else WORKLOADS)
    parse_matrix(texts[matrix], matrix)
    there = [name for name in texts if os.path.lexists(folder / name)]
    if there:
        raise InputError(f"{', '.join(there)}: there already; nothing was written", "choose another name")
    written = write_missing(folder, texts | {IGNORE: IGNORED})
    check, measure = typed("check", "--matrix", matrix), typed("matrix", "--matrix", matrix, "--quick")
    place = "then, on a machine with a GPU (here is none): " if "cuda" in kernel.sources and not gpus() else ""
    return [*written, f"next: {check}", f"      {place}{measure}"]
