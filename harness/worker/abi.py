"""Why a file that was built elsewhere cannot be loaded here.

The loader names one symbol, library or version. gcc gives names that hold the newer `std::string` the mark `__cxx11`
(its manual: Dual ABI).
"""

from __future__ import annotations

import os
import platform
import re
import sys

import torch

from . import elf, native, text, tools, wire

SHOWN = 160  # characters of a name
OLD_STRINGS = re.compile(r"std::(string|basic_string<char)\b")
OF_PYTORCH = re.compile(r"(at|c10|torch|caffe2)(::|\d)|\d(at|c10|torch|caffe2)\d|_?THP|aoti_torch_")
OF_PYTHON = re.compile(r"_?Py[A-Z_]")
OF_CUDA = re.compile(r"_{0,2}(cuda|cublas|cudnn|cusparse|cusolver|cufft|curand|nccl|cu)[A-Z]")
COMPILED_FOR = re.compile(r"compiled for Python (3\.\d+)")
OF_STACK = re.compile(r"lib(torch|c10|cu|nv|nccl|python)")
UNDEFINED = re.compile(r"(?:(\S+): )?undefined symbol: (\w+)")
NOT_FOUND = re.compile(r"(\S+): cannot open shared object file")
VERSION = re.compile(r"(\S+): version `(\S+?)' not found")
MODULE = re.compile(r"No module named '([\w.]+)'")


def version() -> str:
    return "PyTorch " + str(torch.__version__).split("+", 1)[0]


def unfit(path: str) -> wire.LoadFailure | None:
    """Return what is wrong before anything is loaded; None where that is to be seen."""
    try:
        machine = elf.machine(path)
    except ValueError as error:
        return wire.LoadFailure("file", reason=f"it {error}")
    here = platform.machine()
    if machine != here:
        reason = f"it is built for {machine}, and this machine is {here}"
        return wire.LoadFailure("machine", reason=reason, remedy=f"build it for {here}")
    built_for = elf.python_of(os.path.basename(path))
    return _other_python(built_for) if built_for else None


def _other_python(built_for: str) -> wire.LoadFailure | None:
    here = "{}.{}".format(*sys.version_info[:2])
    if built_for == here:
        return None
    reason = f"it is built for Python {built_for}, and this environment has {here}"
    return wire.LoadFailure("python", reason=reason, remedy=f"build it for Python {here}, or set python: '{built_for}'")


def explain(said: str, path: str) -> wire.LoadFailure:
    """`said`: of the loader, or of Python, about the file or one that came with it."""
    symbol, absent, system = UNDEFINED.search(said), NOT_FOUND.search(said), VERSION.search(said)
    if symbol:
        return _undefined(symbol[2], symbol[1] if symbol[1] and os.path.exists(symbol[1]) else path)
    if absent and os.path.basename(absent[1]) != os.path.basename(path):
        return _no_library(os.path.basename(absent[1]))
    if system:
        library = os.path.basename(system[1])
        reason = f"it needs {system[2]}, which this system's {library} lacks: it was built on a newer one"
        remedy = "build it on a system as old as this one"
        return wire.LoadFailure("system", symbol=system[2], library=library, reason=reason, remedy=remedy)
    other = COMPILED_FOR.search(said)
    package = MODULE.search(said)
    if other and (failure := _other_python(other[1])):
        return failure
    if package:
        name = package[1].split(".")[0]
        reason = f"it imports {package[1]}, which is not installed here"
        remedy = f"pin {name} under `packages` in matrix.yaml"
        return wire.LoadFailure("package", library=name, reason=reason, remedy=remedy)
    return wire.LoadFailure("other", reason=text.first_line(said))


def _undefined(symbol: str, path: str) -> wire.LoadFailure:
    readable = (tools.run(["c++filt", symbol]) or symbol).strip()
    here, failure = version(), wire.LoadFailure("symbol", symbol=symbol)
    shown = readable if len(readable) <= SHOWN else f"{readable[: SHOWN - 3]}..."
    new_strings = "__cxx11" in symbol or "B5cxx11" in symbol
    built, has = int(new_strings), int(torch._C._GLIBCXX_USE_CXX11_ABI)
    of_pytorch = bool(OF_PYTORCH.search(symbol) or OF_PYTORCH.search(readable))
    if of_pytorch and built != has and (new_strings or OLD_STRINGS.search(readable)):
        failure.kind, flag = "cxx11_abi", "_GLIBCXX_USE_CXX11_ABI"
        failure.reason = f"it is built with {flag}={built}, and {here} with {flag}={has}: it needs {shown}"
        failure.remedy = f"rebuild it with -D{flag}={has}"
    elif OF_PYTHON.match(symbol):
        failure.kind = "python"
        failure.reason = f"it needs {symbol}, which Python {platform.python_version()} does not have"
        failure.remedy = "build it for Python {}.{}".format(*sys.version_info[:2])
    elif of_pytorch:
        failure.reason = f"it needs {shown}, which {here} does not define"
        failure.remedy = f"rebuild it against {here}"
    elif OF_CUDA.match(symbol):
        cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
        failure.reason = f"it needs {symbol}, which nothing in this process defines ({here} has {cuda})"
        failure.remedy = "rebuild it against the CUDA of this PyTorch, or link the library that defines it"
    else:
        failure.reason = f"it needs {shown}, which nothing in this process defines"
        failure.remedy = f"link the library that defines it: {os.path.basename(path)} does not name one"
    return failure


def _no_library(name: str) -> wire.LoadFailure:
    stem = name.split(".so", maxsplit=1)[0]
    there = sorted({os.path.basename(path) for path in native.mapped() if os.path.basename(path).startswith(stem)})
    here, failure = version(), wire.LoadFailure("library", library=name, instead=", ".join(there))
    failure.reason = f"it needs {name}, which is not there"
    failure.remedy = f"rebuild it against {here}, or link it without {name}"
    if there:
        failure.reason += f"; {here} has {failure.instead}"
    elif stem.startswith(("libtorch_cuda", "libc10_cuda", "libcu", "libnv")) and torch.version.cuda is None:
        failure.reason += f": this {here} is built without CUDA"
        failure.remedy = "pin a PyTorch with CUDA, or build it for the CPU alone"
    elif not OF_STACK.match(stem):  # a file is loaded alone, without what lay beside it
        failure.remedy = f"link {name} statically, or pack both into a wheel"
    return failure
