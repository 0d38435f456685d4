"""What compilers left in their caches, as files that can be compared between versions.

Inductor (`TORCHINDUCTOR_CACHE_DIR`; torch/_inductor/codecache.py) names every file by a hash: output code in Python,
which holds the sources of its kernels, and ``.cpp`` and ``.so`` of C++ kernels. Triton (`TRITON_CACHE_DIR`;
triton/compiler/compiler.py) has a folder for each kernel: ``NAME.json``, which describes it, and one file for each
stage, up to machine code. So it is in PyTorch 2.1.0 with Triton 2.1.0, and in 2.5.0 with 3.1.0.

Texts are compared without what is another's in each process: folders, hashes, and places in source files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any, Iterator

from . import machine_code, tools, wire

STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")  # of Triton, as text
BINARIES = ("cubin", "hsaco")
KERNELS = re.compile(r"^(\w+) = async_compile\.(\w+)\((.*?)'''(.*?)'''", re.MULTILINE | re.DOTALL)
IS_OUTPUT = "AsyncCompile()"  # in Inductor's output code, and in no other file of its cache
TEXT_CHARACTERS, TEXTS_CHARACTERS = 24_000, 96_000  # that are kept: of a file, of all
HASHES = re.compile(r"\b(?:[cf][a-z2-7]{51}|[0-9a-f]{64})\b")


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
    libraries = [path for path in _files(folder) if path.endswith(".so")]
    sources = {path: tools.read_text(os.path.splitext(path)[0] + ".cpp") for path in libraries}
    names = {}  # several graphs may share one
    for _, text in _graphs(folder):
        for name, compiler, _, source in KERNELS.findall(text):
            path = next((path for path, whole in sources.items() if source.strip() in whole), "")
            if compiler.startswith("cpp") and path:
                names[path] = name
    for path, name in names.items():
        yield wire.GeneratedFile("so", name, os.path.getsize(path), machine_code.hash_object(path))


def _triton(folder: str, programs: str) -> Iterator[wire.GeneratedFile]:
    for path in _files(folder):
        name, kind = os.path.splitext(os.path.basename(path))
        kind = kind[1:]
        if kind not in (*STAGES, *BINARIES):
            continue
        described = _json(os.path.join(os.path.dirname(path), f"{name}.json"))
        own = described.get("name", name)  # in Triton 2.1.0 with its arguments' properties: add_0d1d2d3de
        if kind in STAGES:
            yield _text(kind, name, path, normalised(tools.read_text(path), folder).replace(own, name))
        else:
            yield wire.GeneratedFile(kind, name, os.path.getsize(path), _hash_binary(path, programs))


def _hash_binary(path: str, programs: str) -> str:
    """Return the hash of its instructions; of its bytes, marked "raw:", where nothing disassembles it."""
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
