"""What a bundle leaves out. Nothing here changes a file that the CPU executes."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path

from harness.isolate.bundle.archive import entries
from harness.isolate.bundle.fatbin import blank

PACKAGES = "lib/python3*/site-packages"
# Pattern of paths below the environment to what it is. `*` stands for slashes too.
ENVIRONMENT = {
    f"{PACKAGES}/triton/*": "torch.compile's GPU compiler; its metadata stays, so that the pins are still found",
    f"{PACKAGES}/*.a": "archives for linking",
    f"{PACKAGES}/*/tests/*": "packages' own tests",
    f"{PACKAGES}/torch/bin/protoc*": "a compiler of ONNX's definitions",
    f"{PACKAGES}/nvidia/cusolver/lib/libcusolverMg.so*": "linear algebra over several GPUs; PyTorch does not link it",
    f"{PACKAGES}/nvidia/cudnn/lib/libcudnn_*_train.so*": "cuDNN 8's training",
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
# Loaded with PyTorch, and never called by a matrix product, a softmax or attention: all of their GPU code goes.
UNUSED = (
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",  # libcusparseLt too
    "libnccl",
    "libtorch_cuda_linalg",
    # cuDNN 8: the PyTorch that it came with has no cuDNN attention. cuDNN 9 has other names, and is needed.
    "libcudnn_adv_infer",
    "libcudnn_cnn_infer",
    "libcudnn_ops_infer",
)


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


def blank_libraries(tree: Path, architecture: int) -> dict[str, int]:
    """Zero the GPU code that this architecture never takes, and all of it in `UNUSED`; library to bytes."""
    blanked = {}
    for entry in list(entries(tree)):
        if entry.has_content and ".so" in entry.path.name:
            size_bytes = blank(entry.path, None if entry.path.name.startswith(UNUSED) else architecture)
            if size_bytes:
                blanked[entry.name] = size_bytes
    return blanked
