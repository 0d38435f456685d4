"""Why a file that was built elsewhere cannot be loaded here, and what this environment has in place of what is missing.

The loader names one symbol, library or version. What changed is found by comparing that symbol with those that the
libraries of this process define: the same function with other parameters, or with the other `std::string`. gcc gives
names that hold the newer one the mark `__cxx11` (its manual: Dual ABI).
"""

from __future__ import annotations

import difflib
import os
import platform
import re
import sys
from typing import Iterable, Sequence

import torch

from . import elf, native, tools, wire

SHOWN = 160  # characters of a name
STRINGS = re.compile(
    r"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> ?>|std::__cxx11::basic_string<char>"
    r"|std::basic_string<char, std::char_traits<char>, std::allocator<char> ?>"
)
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
    """What is wrong before anything is loaded; None where that is to be seen."""
    try:
        found = elf.read(path)
    except ValueError as error:
        return wire.LoadFailure("file", reason=f"it {error}")
    here = platform.machine()
    if found.machine != here:
        return wire.LoadFailure(
            "machine",
            reason=f"it is built for {found.machine}, and this machine is {here}",
            remedy=f"build it for {here}",
        )
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
        return wire.LoadFailure(
            "system", symbol=system[2], library=library, reason=reason, remedy="build it on a system as old as this one"
        )
    other = COMPILED_FOR.search(said)
    package = MODULE.search(said)
    if other and (failure := _other_python(other[1])):
        return failure
    if package:
        name = package[1].split(".")[0]
        return wire.LoadFailure(
            "package",
            library=name,
            reason=f"it imports {package[1]}, which is not installed here",
            remedy=f"pin {name} under `packages` in matrix.yaml",
        )
    return wire.LoadFailure("other", reason=(said.strip().splitlines() or ["(no message)"])[0])


def _undefined(symbol: str, path: str) -> wire.LoadFailure:
    readable = demangled([symbol])[0]
    here, failure = version(), wire.LoadFailure("symbol", symbol=symbol, readable=readable)
    of_pytorch = bool(OF_PYTORCH.search(symbol) or OF_PYTORCH.search(readable))
    near = _near(symbol, readable) if of_pytorch else ""
    new_strings = "__cxx11" in symbol or "B5cxx11" in symbol
    failure.instead = near
    shown = _short(readable)
    built, has = int(new_strings), int(torch._C._GLIBCXX_USE_CXX11_ABI)
    if of_pytorch and built != has and (new_strings or (near and _plain(near) == _plain(readable))):
        failure.kind, flag = "cxx11_abi", "_GLIBCXX_USE_CXX11_ABI"
        failure.reason = f"it is built with {flag}={built}, and {here} with {flag}={has}: it needs {shown}"
        failure.remedy = f"rebuild it with -D{flag}={has}"
    elif OF_PYTHON.match(symbol):
        failure.kind = "python"
        failure.reason = f"it needs {symbol}, which Python {platform.python_version()} does not have"
        failure.remedy = "build it for Python {}.{}".format(*sys.version_info[:2])
    elif of_pytorch:
        change = _changed(readable, near)
        failure.reason = f"it needs {shown}, which {here} does not define"
        failure.reason += f"; {here} has {change}" if change else ""
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


# -- symbols ----------------------------------------------------------------------------------------------


def demangled(symbols: Sequence[str]) -> list[str]:
    """As C++ writes them; as they are where c++filt is missing."""
    lines = (tools.run(["c++filt", *symbols]) or "").splitlines() if symbols else []
    return lines if len(lines) == len(symbols) else list(symbols)


def provided(path: str) -> dict[str, str]:
    """What it needs of PyTorch, CUDA and Python, symbol by symbol: which library in this process defines it."""
    left = {
        name
        for name in elf.read(path).undefined
        if OF_PYTORCH.search(name) or OF_PYTHON.match(name) or OF_CUDA.match(name)
    }
    found: dict[str, str] = {}
    for library, defined in _libraries():
        for name in left & defined:
            found[name] = native.described(library)
        left -= defined
        if not left:
            break
    return found


def _libraries() -> Iterable[tuple[str, frozenset[str]]]:
    """Those in this process, PyTorch's first, with what they define."""
    for path in sorted(native.mapped(), key=lambda name: ("/torch/" not in name, name)):
        try:
            yield path, elf.read(path).defined
        except (OSError, ValueError):  # not a library, or deleted
            continue


def _name_of(symbol: str) -> str:
    """The part of a mangled name that says which function it is, without its parameters; empty where it is none."""
    start = re.match(r"_ZN?[KVR]*", symbol)
    at = start.end() if start else len(symbol)
    begun = at
    while at < len(symbol) and (number := re.match(r"\d+", symbol[at:])):
        at += len(number[0]) + int(number[0])
    return symbol[begun:at]


def _near(symbol: str, readable: str) -> str:
    """The function of the same name, with other parameters, that this process has; the most alike of several."""
    name = _name_of(symbol)
    if not name:
        return ""
    wanted = re.compile(rf"_ZN?[KVR]*{re.escape(name)}(?!\d)")
    found = {each for path, defined in _libraries() if "/torch/" in path for each in defined if wanted.match(each)}
    every = [each for each in demangled(sorted(found)[:200]) if each != readable]
    return max(every, key=lambda each: difflib.SequenceMatcher(None, readable, each).ratio(), default="")


def _plain(readable: str) -> str:
    """With one word for both kinds of std::string."""
    return STRINGS.sub("std::string", readable).replace("[abi:cxx11]", "").replace("__cxx11::", "")


def _changed(old: str, new: str) -> str:
    """`std::optional in place of c10::optional`, where that is all; else the new name; empty without one."""
    if not new:
        return ""
    before, after = (re.findall(r"[\w:]+|[^\w\s]", each) for each in (old, new))
    pairs = {
        (" ".join(before[a:b]), " ".join(after[c:d]))
        for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if kind != "equal"
    }
    if len(pairs) == 1:
        one, other = pairs.pop()
        if one and other:
            return f"it with {_short(other)} in place of {_short(one)}"
    return _short(new)


def _short(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..."
