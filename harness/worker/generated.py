"""What compilers left in their caches, as files that can be compared between versions.

Inductor (`TORCHINDUCTOR_CACHE_DIR`; torch/_inductor/codecache.py) names every file by a hash: output code in Python,
which holds the sources of its kernels, ``.cpp`` and ``.so`` of C++ kernels, and ``.best_config`` beside a Triton
kernel's source, with the configuration that tuning picked. Triton (`TRITON_CACHE_DIR`; triton/compiler/compiler.py) has
a folder for each kernel: ``NAME.json``, which describes it, and one file for each stage, up to machine code. So it is
in PyTorch 2.1.0 with Triton 2.1.0, and in 2.5.0 with 3.1.0.

Texts are compared without what is another's in each process: folders, hashes, and places in source files.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import sys
from typing import Any, Iterator, NamedTuple

from . import machine_code, tools, wire

STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")  # of Triton, as text
BINARIES = ("cubin", "hsaco")
NUMBERS = {"shared": "shared_bytes", "num_warps": "num_warps", "num_stages": "num_stages"}  # in Triton's description
KERNELS = re.compile(r"^(\w+) = async_compile\.(\w+)\((.*?)'''(.*?)'''", re.MULTILINE | re.DOTALL)
IS_OUTPUT = "AsyncCompile()"  # in Inductor's output code, and in no other file of its cache
TEXT_CHARACTERS, TEXTS_CHARACTERS = 24_000, 96_000  # that are kept: of a file, of all
HASHES = re.compile(r"\b(?:[cf][a-z2-7]{51}|[0-9a-f]{64})\b")
NOT_PICKED = ("configs_hash", "found_by_coordesc", "time_taken_ms", "triton_cache_hash")  # beside a configuration


def generated(folder: str, programs: str = "") -> list[wire.GeneratedFile]:
    """The files below a folder of caches that tell what was compiled. `programs`: of the CUDA toolkit's folder."""
    found = [*_inductor(folder), *_triton(folder, programs)]
    left = TEXTS_CHARACTERS
    for file in found:
        if len(file.text) > min(TEXT_CHARACTERS, left):
            file.text = ""
        left -= len(file.text)
    return sorted(found, key=lambda file: (file.kind, file.name, file.sha256))


def _files(folder: str) -> Iterator[str]:
    """The oldest first: a cache's files in the order in which they were made."""
    paths = [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]
    yield from sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, path))


def normalised(text: str, folder: str) -> str:
    """Without the cache's folder, hashes, the environment's folder, places in files, and comments on them."""
    text = HASHES.sub("HASH", text.replace(folder, "$CACHE"))
    text = re.sub(r"\$CACHE(/\w+)*?/[a-z2-7]{2}/HASH", "$CACHE/HASH", text)
    text = re.sub(r"(?<![^\s'\"])[^\s'\"]*/site-packages/", "$PACKAGES/", text)  # at a word's beginning alone
    text = re.sub(r"^\s*(#loc.*|\.(loc|file)\s.*|# Source Nodes.*|# .*File: .*)\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\s+loc\((#loc\w*|\"[^\"]*\"[^)]*)\)", "", text)


def _text(kind: str, name: str, path: str, text: str) -> wire.GeneratedFile:
    sha256 = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return wire.GeneratedFile(kind, name, os.path.getsize(path), sha256, text)


def _graphs(folder: str) -> Iterator[tuple[str, str]]:
    """Path and text of Inductor's output code, of one graph after the other."""
    for path in _files(folder):
        text = tools.read_text(path) if path.endswith(".py") else ""
        if IS_OUTPUT in text:
            yield path, text


def _inductor(folder: str) -> Iterator[wire.GeneratedFile]:
    """Each graph's output code, and the machine code of each C++ kernel in it."""
    for number, (path, text) in enumerate(_graphs(folder)):
        yield _text("inductor", f"graph {number}", path, normalised(text, folder))
    names = {kernel.path: kernel.name for kernel in cpp_kernels(folder)}  # several graphs may share one
    for path, name in names.items():
        yield wire.GeneratedFile("so", name, os.path.getsize(path), machine_code.hash_object(path))


class CppKernel(NamedTuple):
    """One of Inductor's C++ kernels, and the shared object that holds it."""

    name: str
    path: str


def cpp_kernels(folder: str) -> list[CppKernel]:
    """Inductor's C++ kernels whose shared object is there, in the order of the graphs and in them."""
    libraries = [path for path in _files(folder) if path.endswith(".so")]
    sources = {path: tools.read_text(os.path.splitext(path)[0] + ".cpp") for path in libraries}
    return [
        CppKernel(name, path)
        for _, text in _graphs(folder)
        for name, compiler, _, source in KERNELS.findall(text)
        if compiler.startswith("cpp")
        for path in [path for path, whole in sources.items() if source.strip() in whole][:1]
    ]


def _triton(folder: str, programs: str) -> Iterator[wire.GeneratedFile]:
    loaded = loaded_kernels()
    for path in _files(folder):
        name, kind = os.path.splitext(os.path.basename(path))
        kind = kind[1:]
        if kind not in (*STAGES, *BINARIES):
            continue
        described = _json(os.path.join(os.path.dirname(path), f"{name}.json"))
        own = described.get("name", name)  # in Triton 2.1.0 with its arguments' properties: add_0d1d2d3de
        if kind in STAGES:
            file = _text(kind, name, path, normalised(tools.read_text(path), folder).replace(own, name))
        else:
            file = wire.GeneratedFile(kind, name, os.path.getsize(path), _hash_binary(path, programs))
            file.registers, file.spills = loaded.get((own, described.get("shared")), (None, None))
        for key, field in NUMBERS.items():
            value = described.get(key)
            setattr(file, field, value if type(value) is int else None)
        yield file


def _hash_binary(path: str, programs: str) -> str:
    """Of its instructions; of its bytes, marked "raw:", where nothing disassembles it."""
    tool = machine_code.cuobjdump(programs) if path.endswith(".cubin") else None
    hashes = machine_code.parse_sass((tools.run([tool, "-sass", path]) if tool else "") or "")
    if hashes:
        return hashlib.sha256("\n".join(value for value, _ in hashes.values()).encode()).hexdigest()
    with open(path, "rb") as file:
        return "raw:" + hashlib.sha256(file.read()).hexdigest()


def _json(path: str) -> dict[str, Any]:
    try:
        value = json.loads(tools.read_text(path))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _live(kind: str) -> Iterator[Any]:
    """The objects of Triton's, and of Inductor's around it, whose class has this name."""
    if "triton" in sys.modules:
        for each in gc.get_objects():
            own = type(each)
            if own.__name__ == kind and own.__module__.split(".")[0] in ("triton", "torch"):
                yield each


def loaded_kernels() -> dict[tuple[Any, Any], tuple[int | None, int | None]]:
    """(name, shared memory) of Triton's kernels in this process to their registers and spills, which the driver tells
    when it loads them."""
    found = {}
    for each in _live("CompiledKernel"):
        told = each.metadata if isinstance(each.metadata, dict) else each.metadata._asdict()
        found[told.get("name"), told.get("shared")] = getattr(each, "n_regs", None), getattr(each, "n_spills", None)
    return found


def picked(folder: str) -> list[wire.Picked]:
    """The configurations that tuning picked: those of Triton's tuned functions in this process, for each key of
    arguments, and those that Inductor stored."""
    found = []
    for tuner in _live("Autotuner"):
        for key, config in dict(tuner.cache).items():
            shown = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            own = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
            found.append(wire.Picked(_name(tuner), _configuration(own), shown))
    for path in _files(folder):
        if path.endswith(".best_config"):
            source = re.search(r"^def (\w+)\(", tools.read_text(os.path.splitext(path)[0] + ".py"), re.MULTILINE)
            found.append(wire.Picked(source.group(1) if source else "kernel", _configuration(_json(path))))
    return sorted(found, key=lambda each: (each.kernel, each.key, sorted(each.configuration.items())))


def _name(function: Any) -> str:
    """Of a function under decorators."""
    while not hasattr(function, "__name__") and hasattr(function, "fn"):
        function = function.fn
    return str(getattr(function, "__name__", "kernel"))


def _configuration(values: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in sorted(values.items()) if name not in NOT_PICKED}
