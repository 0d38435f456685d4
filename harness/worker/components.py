"""What a library of NVIDIA's says of its version, by the function that its manual names. None of them needs a GPU."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable


def _properties(function: str) -> Callable[[Any], str | None]:
    """By a function such as cublasGetProperty(which, &value), which is 0, 1 and 2 for major, minor and patch."""

    def read(library: Any) -> str | None:
        values = [ctypes.c_int(0) for _ in range(3)]
        failed = [getattr(library, function)(which, ctypes.byref(value)) for which, value in enumerate(values)]
        return None if any(failed) else ".".join(str(value.value) for value in values)

    return read


def _cudart(library: Any) -> str | None:
    version = ctypes.c_int(0)
    failed = library.cudaRuntimeGetVersion(ctypes.byref(version))
    return None if failed else f"{version.value // 1000}.{version.value % 1000 // 10}"


def _nvrtc(library: Any) -> str | None:
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    failed = library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return None if failed else f"{major.value}.{minor.value}"


def _cudnn(library: Any) -> str | None:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    version = library.cudnnGetVersion()  # 8902, and from 9 on 90100
    major = 10_000 if version >= 90_000 else 1000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _nccl(library: Any) -> str | None:
    version = ctypes.c_int(0)
    failed = library.ncclGetVersion(ctypes.byref(version))
    code = version.value  # 2708, and from 2.9 on 20900
    major = 10_000 if code >= 10_000 else 1000
    return None if failed else f"{code // major}.{code % major // 100}.{code % 100}"


# The library's file name without `.so`, and how it says its version.
LIBRARIES: dict[str, Callable[[Any], str | None]] = {
    "libcublas": _properties("cublasGetProperty"),
    "libcudart": _cudart,
    "libcudnn": _cudnn,
    "libcufft": _properties("cufftGetProperty"),
    "libcurand": _properties("curandGetProperty"),
    "libcusolver": _properties("cusolverGetProperty"),
    "libcusparse": _properties("cusparseGetProperty"),
    "libnccl": _nccl,
    "libnvrtc": _nvrtc,
}


def version_of(path: str) -> str | None:
    """Return what a library of NVIDIA's says of its version, such as 12.4 or 9.1.0; None of any other, or where it does
    not say."""
    read = LIBRARIES.get(os.path.basename(path).partition(".so")[0])
    try:
        return read(ctypes.CDLL(path)) if read else None
    except (OSError, AttributeError):
        return None
