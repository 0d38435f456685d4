"""Where the headers and libraries of CUDA are found that a kernel's build needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.worker.tools import find_cuda_libraries

TOOLKIT = ("cuda/include/cublas_v2.h", "cuda/lib64/libcublas.so")
WHEELS = ("site/nvidia/cublas/include/cublas_v2.h", "site/nvidia/cu13/lib/libcublas.so.13")
MORE = ("site/nvidia/cu13/lib/libcublasLt.so.13",)


def find(folder: Path, *files: str) -> tuple[list[str], list[str]]:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return find_cuda_libraries(["cublas"], str(folder / "site"), str(folder / "cuda"))


@pytest.mark.parametrize(
    ("files", "header", "library"),
    [
        ((*TOOLKIT, *WHEELS, *MORE), TOOLKIT[0], WHEELS[1]),
        (TOOLKIT, TOOLKIT[0], TOOLKIT[1]),
        (WHEELS, WHEELS[0], WHEELS[1]),
    ],
    ids=["the toolkit's header, and the library that comes with PyTorch", "no wheels", "no toolkit"],
)
def test_a_header_and_a_library(tmp_path: Path, files: tuple[str, ...], header: str, library: str) -> None:
    found = tmp_path / library
    includes, flags = find(tmp_path, *files)
    assert includes == [str((tmp_path / header).parent)]
    assert flags == [f"-L{found.parent}", f"-l:{found.name}"]


@pytest.mark.parametrize(("files", "missing"), [((), r"cublas_v2\.h"), (TOOLKIT[:1], r"libcublas\.so")])
def test_what_is_nowhere_is_named(tmp_path: Path, files: tuple[str, ...], missing: str) -> None:
    with pytest.raises(LookupError, match=f"{missing} is neither in"):
        find(tmp_path, *files)
