"""What a bundle leaves out, and what it keeps for the operators that are called. No file that the CPU executes is
changed."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from harness.isolate.bundle.archive import entries
from harness.isolate.bundle.fatbin import blank

PACKAGES = "lib/python3*/site-packages"


class Component(NamedTuple):
    """What attention never runs, and other operators do. `what`: in words. `files`: patterns that are left out, to what
    they are. `libraries` are loaded with PyTorch, so they stay, without GPU code. `operators` finds their callers by
    name, and `sources` by what a Python file says."""

    what: str
    files: Mapping[str, str] = {}
    libraries: tuple[str, ...] = ()
    operators: str = r"(?!)"
    sources: str = r"(?!)"


COMPONENTS = {
    # cuDNN 8's names. cuDNN 9 has others, and stays: PyTorch has an attention of it.
    "cudnn": Component(
        "cuDNN 8's convolutions, recurrent layers and batch norm",
        files={f"{PACKAGES}/nvidia/cudnn/lib/libcudnn_*_train.so*": "cuDNN 8's training"},
        libraries=("libcudnn_adv_infer", "libcudnn_cnn_infer", "libcudnn_ops_infer"),
        operators=r"aten::(conv|_?convolution|.*batch_norm|instance_norm|(lstm|gru|rnn_tanh|rnn_relu)(_cell)?$|_?ctc_loss"
        r"|grid_sampler|affine_grid|cudnn_)",
    ),
    "fft": Component("Fourier transforms", libraries=("libcufft",), operators=r"aten::(_?fft_|i?stft)"),
    "linalg": Component(
        "linear algebra: cuSOLVER, and sparse, which it calls",
        libraries=("libcusolver", "libtorch_cuda_linalg"),
        operators=r"aten::(_?linalg_(?!vector_norm|cross|vecdot)|cholesky|lu_|svd|qr|geqrf|orgqr|ormqr|s?logdet|det$"
        r"|inverse|pinverse|triangular_solve|lstsq|matrix_exp)",
    ),
    # libcusparseLt too
    "sparse": Component("sparse matrices", libraries=("libcusparse",), operators=r"aten::.*sparse"),
    "random": Component("cuRAND; PyTorch's own generators do not need it", libraries=("libcurand",)),
    "nccl": Component("calls between GPUs", libraries=("libnccl",), operators=r"c10d::"),
    "triton": Component(
        "Triton, and torch.compile on a GPU",
        files={f"{PACKAGES}/triton/*": "torch.compile's GPU compiler; its metadata stays: the pins are still found"},
        sources=r"(?m)^\s*(import\s+([\w.]+(\s+as\s+\w+)?\s*,\s*)*|from\s+)triton\b"
        r"|\bimport_module\(\s*['\"]triton\b|torch\.compile\b",
    ),
}
NEEDS = {"linalg": ("sparse",)}  # cuSOLVER calls cuSPARSE
# Pattern of paths below the environment to what it is. `*` stands for slashes too.
ENVIRONMENT = {
    f"{PACKAGES}/*.a": "archives for linking",
    f"{PACKAGES}/*/tests/*": "packages' own tests",
    f"{PACKAGES}/torch/bin/protoc*": "a compiler of ONNX's definitions",
    f"{PACKAGES}/nvidia/cusolver/lib/libcusolverMg.so*": "linear algebra over several GPUs; PyTorch does not link it",
    f"{PACKAGES}/nvidia/cuda_cupti/lib/libnvperf_*.so*": "hardware counters; the profiler's traces need none",
}
SHARED = {
    "usr/share/doc/*": "documentation",
    "usr/share/man/*": "documentation",
    "usr/share/info/*": "documentation",
    "usr/share/locale/*": "translations",
    "var/cache/*": "package manager",
    "var/lib/apt/lists/*": "package manager",
    "usr/lib/gcc/*/lto1": "link-time optimisation",
    "usr/lib/gcc/*/lto-dump*": "link-time optimisation",
    "usr/local/cuda*/nsight*": "profilers with windows",
    "usr/local/cuda*/lib*_static.a": "archives for linking; the runtime's own stays",
    "opt/installer/*": "uv, which made the environments",
}
KEPT = ("*/libcudart_static.a",)  # nvcc links programs with it


def python_files(root: Path) -> Iterator[Path]:
    """Find a project's own Python files: neither hidden, nor of its records, nor of an environment in it."""
    for place, folders, names in os.walk(root):
        if "pyvenv.cfg" in names or Path(place) == root / "reports":
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("site-packages", "dist")]
        yield from (Path(place, name) for name in names if name.endswith(".py") and Path(place, name).is_file())


def components_of(operators: Iterable[str], sources: Iterable[str]) -> dict[str, str]:
    """Components to keep for operators of these names, and for Python files with these texts: each with a caller."""
    found: dict[str, str] = {}
    texts = list(sources)
    names = sorted(operators)
    for name, component in COMPONENTS.items():
        callers = [each for each in names if re.match(component.operators, each)]
        callers += [match.group().strip() for text in texts if (match := re.search(component.sources, text))]
        if callers:
            found[name] = callers[0]
    return found


def with_needed(kept: Iterable[str]) -> tuple[str, ...]:
    """These components, and those that they call."""
    return tuple(sorted({each for name in kept for each in (name, *NEEDS.get(name, ()))}))


def left_out(kept: Collection[str]) -> dict[str, str]:
    """Patterns of an environment's files that go, where these components are kept."""
    others = [component.files for name, component in COMPONENTS.items() if name not in kept]
    return {**ENVIRONMENT, **{pattern: words for files in others for pattern, words in files.items()}}


def leave_out(tree: Path, patterns: Mapping[str, str]) -> dict[str, int]:
    """Delete what matches, and folders that are empty then; pattern to bytes."""
    removed: dict[str, int] = {}
    emptied = set()
    for entry in list(entries(tree)):
        pattern = next((p for p in patterns if fnmatch.fnmatchcase(entry.name, p)), None)
        if pattern and entry.kind != "folder" and not any(fnmatch.fnmatchcase(entry.name, kept) for kept in KEPT):
            entry.path.unlink()
            removed[pattern] = removed.get(pattern, 0) + entry.size_bytes
            emptied.add(entry.path.parent)
    for folder in sorted(emptied, key=lambda path: len(path.parts), reverse=True):
        while folder != tree and folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
    return removed


def blank_libraries(tree: Path, architecture: int, kept: Collection[str] = ()) -> dict[str, int]:
    """Zero the GPU code that this architecture never takes, and all of it in components that are not kept; library to
    bytes."""
    unused = tuple(lib for name, each in COMPONENTS.items() if name not in kept for lib in each.libraries)
    blanked = {}
    for entry in list(entries(tree)):
        if entry.has_content and ".so" in entry.path.name:
            size_bytes = blank(entry.path, None if entry.path.name.startswith(unused) else architecture)
            if size_bytes:
                blanked[entry.name] = size_bytes
    return blanked
