from __future__ import annotations

from pathlib import Path

import pytest

from harness.worker.tools import find_cuda_libraries as find


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_headers_of_the_toolkit_and_the_library_that_comes_with_pytorch(tmp_path: Path) -> None:
    header = touch(tmp_path / "cuda" / "include" / "cublas_v2.h")
    touch(tmp_path / "site" / "nvidia" / "cublas" / "include" / "cublas_v2.h")
    touch(tmp_path / "cuda" / "lib64" / "libcublas.so")
    library = touch(tmp_path / "site" / "nvidia" / "cu13" / "lib" / "libcublas.so.13")
    touch(library.with_name("libcublasLt.so.13"))
    includes, flags = find(["cublas"], str(tmp_path / "site"), str(tmp_path / "cuda"))
    assert includes == [str(header.parent)]
    assert flags == [f"-L{library.parent}", "-l:libcublas.so.13"]


def test_a_toolkit_without_wheels_and_wheels_without_a_toolkit(tmp_path: Path) -> None:
    touch(tmp_path / "cuda" / "include" / "cublas_v2.h"), touch(tmp_path / "cuda" / "lib64" / "libcublas.so")
    assert "-l:libcublas.so" in find(["cublas"], str(tmp_path / "none"), str(tmp_path / "cuda"))[1]
    header = touch(tmp_path / "site" / "nvidia" / "cublas" / "include" / "cublas_v2.h")
    touch(tmp_path / "site" / "nvidia" / "cublas" / "lib" / "libcublas.so.12")
    assert find(["cublas"], str(tmp_path / "site"), "")[0] == [str(header.parent)]


def test_what_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"cublas_v2\.h is neither in"):
        find(["cublas"], str(tmp_path), str(tmp_path / "cuda"))
    touch(tmp_path / "cuda" / "include" / "cublas_v2.h")
    with pytest.raises(LookupError, match=r"libcublas\.so is neither in"):
        find(["cublas"], str(tmp_path), str(tmp_path / "cuda"))


def test_nothing_is_asked_for(tmp_path: Path) -> None:
    assert find([], str(tmp_path), "") == ([], [])
