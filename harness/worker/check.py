"""`check`: a kernel's C entry point in an executable of its own (csrc/probes/attention_call.cpp), under checkers.

It compiles and runs, and judges nothing: what the tools printed goes back as it is. Every tool runs twice, once with
a fault planted that it must find. The executable, not this process, holds the code under test.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import shlex
import shutil
import tempfile
from typing import Mapping, Sequence

import numpy as np

from . import build, dtypes, protocol, tools, wire
from .attention import AttentionWorkload

COMPILE_S = 300
# What each build of the CPU twin is compiled with, besides the kernel's own flags. Floating-point contraction is the
# one liberty that compilers take with results; without it, two builds that differ in bits differ in what they read.
CPU_BUILDS = {
    "memory": ["-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fsanitize-recover=address,undefined"],
    "thread": ["-g", "-fno-omit-frame-pointer", "-fsanitize=thread"],
    "zero": ["-ftrivial-auto-var-init=zero", "-ffp-contract=off"],
    "pattern": ["-ftrivial-auto-var-init=pattern", "-ffp-contract=off"],
}
QUIET = ["-w"]  # a kernel's own -Werror is not meant for the driver
CPU_RUNS: Mapping[
    str, Sequence[tuple[str, int | None]]
] = {  # build to (fault that is planted, threads; None: two at least, for a race needs two)
    "memory": [("", None), ("short", None), ("overflow", None)],
    "thread": [("", None), ("race", None)],
    "zero": [("", 1), ("again", 1), ("uninitialised", 1)],
    "pattern": [("", 1), ("uninitialised", 1)],
}
CPU_VARIABLES = {
    "ASAN_OPTIONS": "halt_on_error=0:detect_leaks=0:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=0:report_thread_leaks=0:second_deadlock_stack=1",
}
CUDA_FAULTS = {"memcheck": "short", "racecheck": "race", "initcheck": "uninitialised", "synccheck": "barrier"}
# Tensors lie side by side on a GPU: bytes between them that are nobody's, or one read past its end is the next one's.
CUDA_OPTIONS = {"memcheck": ["--padding", str(64 << 10)]}
AT_ONCE = 8  # compute-sanitizers: each takes one of ten ports to talk to its program through
OPENMP = re.compile(r"^(GOMP_|GOACC_|omp_|__kmpc_)")
BULK_COPIES = re.compile(r"\b(UBLKCP|UBLKRED|UBLKPF|UTMALDG|UTMASTG|UTMAREDG|UTMAPF)\b")


def check(request: wire.CallRequest) -> wire.CheckResult:
    result = wire.CheckResult(protocol.OK)
    # HOME is this process's own folder in every executor, and what lies there may be executed.
    with tempfile.TemporaryDirectory(dir=os.environ.get("HOME")) as folder:
        (_cuda if request.device == "cuda" else _cpu)(request, folder, result)
    return result


class Program:
    """How the executable is called: inputs that all calls share, and an output for each build."""

    def __init__(self, request: wire.CallRequest, folder: str) -> None:
        workload = AttentionWorkload(request.workload)
        batch, heads = request.batch, request.heads
        shape = (batch, heads, *workload.shape[2:])
        self.folder, self.timeout_s = folder, request.run_s
        self.inputs = os.path.join(folder, "inputs")
        with open(self.inputs, "wb") as file:
            for array in workload.arrays(request.recipe, request.trial, request.seed):
                file.write(np.ascontiguousarray(array[:batch, :heads]).tobytes())
        self.fixed = [str(number) for number in (*shape, dtypes.C_INTERFACE[workload.dtype], int(workload.causal))]
        self.scale = workload.scale.hex()
        self.size_bytes = dtypes.size_bytes(workload.dtype, shape)

    def run(
        self,
        executable: str,
        call: tuple[str, str, str],
        threads: int,
        *,
        before: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        name: str = "",
    ) -> wire.Called:
        """`call`: build, tool and the fault that is planted; `again` is none: the same call once more. `name` tells its
        output from those of other calls of the same executable at the same time."""
        build, tool, fault = call
        output = executable + name + ".out"
        if os.path.lexists(output):
            os.unlink(output)
        planted = [fault] if fault not in ("", "again") else []
        command = [*before, executable, *self.fixed, str(threads), self.scale, self.inputs, output, *planted]
        code, printed = tools.attempt(command, self.timeout_s, variables)
        plain = os.path.isfile(output) and not os.path.islink(output)
        sha256 = protocol.sha256_file(output) if plain and os.path.getsize(output) == self.size_bytes else ""
        return wire.Called(build, tool, fault, shown(command, self.folder), code, printed, sha256)


def shown(command: Sequence[str], folder: str) -> str:
    """A command as a person would type it in the folder that it ran in."""
    return " ".join(map(shlex.quote, command)).replace(folder + os.sep, "./")


def _compile(command: Sequence[str], folder: str) -> wire.CompilerCall:
    code, output = tools.attempt(command, COMPILE_S)
    return wire.CompilerCall(shown(command, folder), (output[-4000:] or "it failed") if code != 0 else "")


def _cpu(request: wire.CallRequest, folder: str, result: wire.CheckResult) -> None:
    needed = tools.undefined(request.objects)
    if needed is None:
        raise build.lacking("nm is missing, so nobody can tell whether the kernel uses OpenMP: install binutils")
    result.openmp = any(OPENMP.match(name) for name in needed)
    program = Program(request, folder)
    given = [*request.flags.cxx, *(f"-I{path}" for path in request.include_dirs)]
    sources = [request.driver, *request.sources]

    def one(name: str) -> tuple[wire.CompilerCall, list[wire.Called]]:
        executable = os.path.join(folder, name)
        made = _compile(
            [*tools.cxx(), *given, *CPU_BUILDS[name], *QUIET, *sources, "-pthread", "-o", executable], folder
        )
        rows = []
        for fault, threads in CPU_RUNS[name] if not made.errors else ():
            called = (name, name, fault), threads or max(2, request.threads)
            rows.append(program.run(executable, *called, variables=CPU_VARIABLES))
        return made, rows

    names = [name for name in CPU_BUILDS if not (name == "thread" and result.openmp)]
    with tools.confining(), concurrent.futures.ThreadPoolExecutor(request.threads) as pool:
        for name, (made, rows) in zip(names, pool.map(one, names)):
            result.builds[name] = made
            result.runs += rows


def _cuda(request: wire.CallRequest, folder: str, result: wire.CheckResult) -> None:
    nvcc, sanitizer = need_cuda()
    program = Program(request, folder)
    executable = link_cuda(nvcc, request, folder, result.builds)
    if executable is None:
        return
    cuobjdump = os.path.join(os.path.dirname(nvcc), "cuobjdump")
    result.bulk_copies = bool(BULK_COPIES.search(tools.run([cuobjdump, "-sass", executable]) or ""))

    def one(tool: str, fault: str) -> wire.Called:
        name = "-".join(["", tool, *([fault] if fault else [])])
        before = [sanitizer, "--tool", tool, *CUDA_OPTIONS.get(tool, [])]
        return program.run(executable, ("call", tool, fault), 0, before=before, name=name)

    calls = [(tool, fault) for tool, planted in CUDA_FAULTS.items() for fault in ("", planted)]
    with concurrent.futures.ThreadPoolExecutor(min(AT_ONCE, request.threads)) as pool:
        result.runs = list(pool.map(lambda call: one(*call), calls))


def need_cuda() -> tuple[str, str]:
    """Return the paths of nvcc and of compute-sanitizer, where a GPU is there. `wire.Failed` elsewhere."""
    import torch
    from torch.utils import cpp_extension

    if not torch.cuda.is_available():
        raise build.lacking("PyTorch sees no CUDA device here")
    nvcc = build.check_nvcc(cpp_extension)
    sanitizer = find_sanitizer(os.path.dirname(nvcc))
    if sanitizer is None:
        raise build.lacking("compute-sanitizer is missing; it comes with the CUDA toolkit (cuda-sanitizer)")
    return nvcc, sanitizer


def link_cuda(nvcc: str, request: wire.CallRequest, folder: str, builds: dict[str, wire.CompilerCall]) -> str | None:
    """The executable of the driver and the build's very objects; None where it cannot be made, as `builds` says."""
    executable, driver = os.path.join(folder, "call"), os.path.join(folder, "driver.o")
    include = [f"-I{path}" for path in request.include_dirs]
    gencode = [flag for flag in request.flags.nvcc if flag.startswith("-gencode")]
    compiled = [nvcc, "-x", "cu", "-std=c++17", "-lineinfo", *gencode, *include, "-c", request.driver, "-o", driver]
    linked = [nvcc, driver, *request.objects, "-o", executable]
    for name, command in (("driver", compiled), ("call", linked)):
        builds[name] = _compile(command, folder)
        if builds[name].errors:
            return None
    return executable


def find_sanitizer(folder: str) -> str | None:
    """compute-sanitizer beside nvcc, in the toolkit's folder of that name, or on the PATH; None."""
    beside = os.path.join(folder, "..", "compute-sanitizer")
    return next(filter(None, (shutil.which("compute-sanitizer", path=p) for p in (folder, beside, None))), None)
