"""What a library of NVIDIA's says of its version, by the function that its manual names. None of them needs a GPU."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable


def _numbers(library: Any, function: str, *which: int) -> list[int]:
    """Return the numbers that a function writes to its last arguments; AttributeError where it fails. `which`: what is
    asked for, of a function that gives one number in each call."""
    call = getattr(library, function)
    values = [ctypes.c_int(0) for _ in (which or (0,))]
    if any(call(*([which[at]] if which else []), ctypes.byref(value)) for at, value in enumerate(values)):
        raise AttributeError(f"{function} fails")
    return [value.value for value in values]


def _properties(function: str) -> Callable[[Any], str]:
    """Return a reader by a function such as cublasGetProperty(which, &value): 0, 1 and 2 are major, minor and patch."""
    return lambda library: ".".join(map(str, _numbers(library, function, 0, 1, 2)))


def _cudart(library: Any) -> str:
    (version,) = _numbers(library, "cudaRuntimeGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}"


def _nvrtc(library: Any) -> str:
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)):
        raise AttributeError("nvrtcVersion fails")
    return f"{major.value}.{minor.value}"


def _from_code(code: int, changed_at: int) -> str:
    """Return a version that stands in one number: 8902, and later 90100."""
    major = 10_000 if code >= changed_at else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def _cudnn(library: Any) -> str:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return _from_code(library.cudnnGetVersion(), 90_000)


def _nccl(library: Any) -> str:
    [code] = _numbers(library, "ncclGetVersion")
    return _from_code(code, 10_000)


# The library's file name without `.so`, and how it says its version.
LIBRARIES: dict[str, Callable[[Any], str]] = {
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
