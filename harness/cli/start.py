"""How a project begins: `kernel-matrix init` writes a matrix.yaml, a noxfile.py and a reports/.gitignore for the
kernels that lie in a folder; `new` writes a kernel's template that is correct as it stands, and a matrix file for it
alone. Both ask nothing and overwrite nothing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.cli.options import Command, Parser
from harness.config.matrix import parse_matrix
from harness.errors import DONE, InputError
from harness.gpu import gpus
from harness.typed import typed

MOST_FILES, MOST_BYTES = 20_000, 1 << 20  # looked at; and of one file
DEVICES = {".cpp": "cpu", ".cc": "cpu", ".cxx": "cpu", ".cu": "cuda"}
SKIPPED = {"build", "dist", "node_modules", "reports", "third_party", "venv"}
ENTRY_POINT = re.compile(r"\battention_forward\s*\(")
OWN_BINDING = re.compile(r'\bPYBIND11_MODULE\b[\s\S]*?\.def\(\s*"forward"')
PROBLEM, SOLUTION = re.compile(r"^class Model\b", re.MULTILINE), re.compile(r"^class ModelNew\b", re.MULTILINE)
INPUTS = re.compile(r"^def get_inputs\b", re.MULTILINE)

HEAD = """\
# What `kernel-matrix matrix{options}` compares. By default: PyTorch 2.1.0 and 2.5.0 for CUDA 12.1 (key `environments`).
kernels:
"""
WORKLOADS = """\
# What attention kernels are tested on: a length that tiles divide, and one that none does.
workloads:
  - name: seed
    shape: {batch: 1, heads: 8, seq_len: 512, head_dim: 64}
    dtypes: {cpu: [float32], cuda: [float16, float32]}
  - name: tail
    shape: {batch: 1, heads: 8, seq_len: 511, head_dim: 64}
    dtypes: {cpu: [float32], cuda: [float16, float32]}
"""
EXAMPLE = "kernels: [{name: mine, sources: {cpu: [mine/attention.cpp]}}]"
IGNORE = "reports/.gitignore"
# Beside the pages, so that a .gitignore of the project's own is left as it is.
LEFT = ("runs/", "bisections/", "sweeps/", "traces/", "shards/", "compared/", "latest")
IGNORED = "\n".join(["# What runs leave here: arrays, logs and pages.", *(f"/{name}" for name in LEFT), ""])
NOXFILE = '''\
"""`nox -s matrix -- --quick`, `nox -s "eval(torch='2.5.0')"`: sessions that start the `kernel-matrix` on the PATH."""

import difflib
import sys
from pathlib import Path

import nox

VERSIONS = ["2.1.0", "2.5.0"]
nox.options.default_venv_backend = "none"
nox.options.sessions = ["matrix"]


def kernel_matrix(session: nox.Session, *words: str) -> None:
    variables = {"KERNEL_MATRIX_BY_NOX": "1"}  # commands on pages and in messages are then sessions of nox
    session.run("kernel-matrix", *words, *session.posargs, external=True, env=variables)


def add_session(verb: str) -> None:
    @nox.session(name=verb)
    def run(session: nox.Session) -> None:
        kernel_matrix(session, verb)


for verb in (
    "new", "check", "matrix", "collect", "report", "compare", "export", "explain", "bisect", "sweep", "trace", "gate",
    "kernelbench", "images", "bundle", "pins", "doctor",
):
    add_session(verb)


@nox.session(name="eval")
@nox.parametrize("torch", VERSIONS)
def evaluate(session: nox.Session, torch: str) -> None:
    kernel_matrix(session, "eval", f"--torch={torch}")


def refuse_unknown(versions: list[str]) -> None:
    """Of a session that is misspelt, or given without its quotes, nox says only that there is none."""
    from nox import registry

    known = [*registry.get(), *(f"eval(torch='{version}')" for version in versions)]
    for option, name in zip(sys.argv, sys.argv[1:], strict=False):
        if option in ("-s", "--session", "--sessions") and name.replace('"', "'") not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f'did you mean nox -s "{near[0]}"? ' if near else ""
            sys.exit(f"error: {name}: no such session\\n  remedy: {meant}nox -l lists them")


if "nox" in (Path(sys.argv[0]).name, Path(sys.argv[0]).parent.name):  # not where a test reads this file
    refuse_unknown(VERSIONS)
'''
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
PROBLEM_FILE = '''\
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
SOLUTION_FILE = '''\
"""The code under test: what {problem} computes, with the same arguments and names of weights."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * self.weight
'''


@dataclass
class FoundKernel:
    """A kernel: sources by device, or a problem and its solution. Paths are relative to the folder."""

    name: str
    sources: dict[str, str] = field(default_factory=dict)
    own: bool = False  # it has a binding of its own
    problem: str = ""
    model_new: str = ""

    @property
    def files(self) -> list[str]:
        return [name for name in (*self.sources.values(), self.problem, self.model_new) if name]

    @property
    def entry(self) -> dict[str, Any]:
        """Return what matrix.yaml says of it."""
        if self.problem:
            return {"name": self.name, "problem": self.problem, "model_new": self.model_new}
        sources = {device: [name] for device, name in sorted(self.sources.items())}
        return {"name": self.name, "sources": sources} | ({"binding": "own"} if self.own else {})


def render_matrix(kernels: list[FoundKernel], options: str = "") -> str:
    """Return a matrix.yaml of these kernels. `options`: with which it is named. InputError where it is none."""
    style: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "allow_unicode": True, "width": 1 << 20}
    text = HEAD.format(options=options) + "".join(f"  - {yaml.safe_dump(each.entry, **style)}" for each in kernels)
    text += WORKLOADS if any(kernel.sources for kernel in kernels) else ""
    parse_matrix(text)
    return text


def write_missing(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Write those of the files that are not there; return which, in lines."""
    lines = []
    for name, text in texts.items():
        path = folder / name
        if not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            lines.append(f"wrote {name}")
    return lines


def kernel_name(text: str) -> str:
    """Return a text as a kernel may be called."""
    return re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")[:60] or "kernel"


# -- init -------------------------------------------------------------------------------------------------------


def init(folder: Path) -> list[str]:
    """Write the files that are not there; return what was found and written, in lines.

    InputError where matrix.yaml is there already, or nothing is found that could be a kernel.
    """
    matrix = folder / "matrix.yaml"
    if os.path.lexists(matrix):
        raise InputError(f"{matrix}: is there already; nothing was changed", "edit it, or start elsewhere")
    kernels = find_kernels(folder)
    if not kernels:
        raise InputError(
            f"{folder}: no .cu or .cpp file with attention_forward or a pybind11 forward(), and no pair of Model and "
            "ModelNew",
            f"name yours in a matrix.yaml, such as: {EXAMPLE}; of a KernelBench pair give problem and model_new",
        )
    lines = [f"found {kernel.name}: {', '.join(kernel.files)}" for kernel in kernels]
    lines += write_missing(folder, {"matrix.yaml": render_matrix(kernels), "noxfile.py": NOXFILE, IGNORE: IGNORED})
    return [*lines, "next: kernel-matrix matrix --quick"]


def find_kernels(folder: Path) -> list[FoundKernel]:
    """Find the kernels below a folder: sources with the C entry point or a pybind11 `forward`, and KernelBench's
    pairs."""
    kernels: dict[tuple[str, str], FoundKernel] = {}
    problems, solutions = list[Path](), list[Path]()
    for path, text in _read_texts(folder):
        name = str(path.relative_to(folder))
        if path.suffix == ".py":
            if SOLUTION.search(text):
                solutions.append(path)
            elif PROBLEM.search(text) and INPUTS.search(text):
                problems.append(path)
        elif (own := bool(OWN_BINDING.search(text))) or ENTRY_POINT.search(text):
            device, stem = DEVICES[path.suffix], re.sub(r"_(cpu|cuda|gpu)$", "", path.stem)
            found = kernels.setdefault((str(path.parent), stem), FoundKernel(name=stem, own=own))
            if device in found.sources or found.own != own:
                found = kernels.setdefault((str(path.parent), path.name), FoundKernel(name=path.stem, own=own))
            found.sources[device] = name
    every = [*kernels.values(), *_pairs(folder, problems, solutions)]
    taken = set[str]()
    for kernel in every:
        name = kernel_name(kernel.name)
        free = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        kernel.name = next(each for each in free if each not in taken)
        taken.add(kernel.name)
    return every


def _pairs(folder: Path, problems: list[Path], solutions: list[Path]) -> Iterator[FoundKernel]:
    """Yield pairs. A solution's problem begins its name (`softmax.py`, `softmax_new.py`), or is the only one beside
    it."""
    for solution in solutions:
        near = [path for path in problems if solution.stem.startswith(path.stem)]
        near = near or [path for path in problems if path.parent == solution.parent]
        if len(near) == 1 or (near and near[0].stem == solution.stem):
            yield FoundKernel(
                name=solution.stem,
                problem=str(near[0].relative_to(folder)),
                model_new=str(solution.relative_to(folder)),
            )


def _read_texts(folder: Path) -> Iterator[tuple[Path, str]]:
    looked = 0
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in SKIPPED and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            path = here / name
            if path.suffix in (*DEVICES, ".py") and _is_readable(path):
                looked += 1
                if looked > MOST_FILES:
                    return
                yield path, path.read_text(encoding="utf-8", errors="replace")


def _is_readable(path: Path) -> bool:
    """Return whether it is a file of usual size whose name can be written into matrix.yaml."""
    named = str(path).isprintable()
    return named and path.is_file() and os.access(path, os.R_OK) and path.stat().st_size <= MOST_BYTES


# -- new --------------------------------------------------------------------------------------------------------


def new(folder: Path, file: Path) -> list[str]:
    """Write the template and its matrix file; return what was written, in lines.

    InputError where a file is there already, or `file` is outside of the folder or of another kind.
    """
    if file.suffix not in (*DEVICES, ".py"):
        raise InputError(f"{file}: no kind of kernel", "name a .cu, .cpp or .py file, such as mine.cu")
    if file.is_absolute() or ".." in file.parts:
        raise InputError(f"{file}: not inside this folder", "start in the project's folder, and name a path below it")
    kernel = FoundKernel(name=kernel_name(file.stem))
    if file.suffix == ".py":
        problem = file.with_name(f"{file.stem}_problem.py")
        kernel.problem, kernel.model_new = problem.as_posix(), file.as_posix()
        texts = {
            kernel.problem: PROBLEM_FILE.format(solution=file.name),
            kernel.model_new: SOLUTION_FILE.format(problem=problem.name),
        }
    else:
        device = DEVICES[file.suffix]
        kernel.sources[device] = file.as_posix()
        texts = {file.as_posix(): CUDA if device == "cuda" else CPU}
    matrix = f"{kernel.name}.yaml"
    texts[matrix] = render_matrix([kernel], f" --matrix {matrix}")
    there = [name for name in texts if os.path.lexists(folder / name)]
    if there:
        raise InputError(f"{', '.join(there)}: there already; nothing was written", "choose another name")
    written = write_missing(folder, texts | {IGNORE: IGNORED})
    check, measure = typed("check", "--matrix", matrix), typed("matrix", "--matrix", matrix, "--quick")
    place = "then, on a machine with a GPU (here is none): " if "cuda" in kernel.sources and not gpus() else ""
    return [*written, f"next: {check}", f"      {place}{measure}"]


def add_init_options(parser: Parser) -> None:
    """Add none: it works in the current folder."""


def run_init(options: argparse.Namespace) -> int:
    print("\n".join(init(Path.cwd())))
    return DONE


def add_new_options(parser: Parser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="to write: mine.cu, mine.cpp or mine.py")


def run_new(options: argparse.Namespace) -> int:
    print("\n".join(new(Path.cwd(), options.file)))
    return DONE


COMMANDS = {"init": Command(add_init_options, run_init), "new": Command(add_new_options, run_new)}
