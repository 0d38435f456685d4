"""A kernel in a plain shared object with the C entry points of csrc/attention.h, called without a binding, by ctypes.

It leaves the CUDA and OpenMP runtimes undefined: they are resolved by those that this PyTorch has loaded, as they are
for an extension. The machine code is another environment's, the runtime is this one's.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from . import dtypes, native, protocol, tensors
from .blame import enters_subject
from .kernels import Extension, blamed
from .text import said

if TYPE_CHECKING:
    from .attention import AttentionWorkload

NO_OPTIONS = -9  # ATTENTION_ERROR_OPTIONS of the C interface
RUNTIME = re.compile(r"lib(cudart|gomp|iomp5|omp)[.-].*so")
NAMED_RUNTIME = re.compile(r"lib(cudart|gomp|iomp5|omp|stdc\+\+|c)[.-].*so")


class Problem(ctypes.Structure):
    """`attention_problem`."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("batch", "heads", "seq_len", "head_dim", "dtype", "causal", "threads")),
        ("scale", ctypes.c_float),
    ]


class Options(ctypes.Structure):
    """`attention_options`."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("struct_size", "kv_heads", "kv_len")),
        *((name, ctypes.c_void_p) for name in ("mask", "bias", "keep")),
        ("keep_scale", ctypes.c_float),
    ]


def open_library(path: str) -> ctypes.CDLL:
    """A plain shared object, bound to the runtime libraries that are in this process. OSError."""
    for name in native.loaded(RUNTIME):
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)  # it is loaded: this lets others find what is in it
    return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)


class Library(Extension):
    """A kernel from a plain shared object, bound and called as one from an extension is.

    `note` names the runtime libraries that were loaded, each by its place in its environment.
    """

    returns = False
    chooses = None  # what it says is asked of the extension that it was taken from

    @enters_subject
    def __init__(self, path: str, workload: AttentionWorkload) -> None:
        with blamed(protocol.LOADING + os.path.basename(path)):
            library = self.library = open_library(path)
            tensors_and_stream = [ctypes.c_void_p] * 5
            library.attention_forward.argtypes = [ctypes.POINTER(Problem), *tensors_and_stream]
            library.attention_error_string.argtypes = [ctypes.c_int]
            library.attention_error_string.restype = ctypes.c_char_p
            if hasattr(library, "attention_forward_options"):
                options = library.attention_forward_options
                options.argtypes = [ctypes.POINTER(Problem), ctypes.POINTER(Options), *tensors_and_stream]
                self.forward_options = partial(self._with_options, options, 4)
            if hasattr(library, "attention_backward"):
                backward = library.attention_backward
                backward.argtypes = [ctypes.POINTER(Problem), ctypes.POINTER(Options), *[ctypes.c_void_p] * 9]
                self.backward = partial(self._with_options, backward, 8)
        self._take(workload)
        self.note = ", ".join(native.described(name) for name in native.loaded(NAMED_RUNTIME))

    def forward(self, q: Any, k: Any, v: Any, out: Any, causal: bool, scale: float) -> None:
        """As the shipped binding's: on a GPU queued on the current stream. RuntimeError where the kernel refuses."""
        self._run(self.library.attention_forward, [], [q, k, v, out], causal, scale)

    def _with_options(self, entry: Any, count: int, *given: Any) -> None:
        """`forward_options` or `backward`: so many tensors come first."""
        called, (causal, scale, *masks, keep_scale) = list(given[:count]), given[count:]
        options = Options(ctypes.sizeof(Options), *called[1].shape[1:3], *map(_address, masks), keep_scale)
        self._run(entry, [ctypes.byref(options)], called, causal, scale)

    @enters_subject
    def _run(self, entry: Any, options: list[Any], given: list[Any], causal: bool, scale: float) -> None:
        q, name = given[0], tensors.dtype_name(given[0])
        threads = 0 if q.is_cuda else torch.get_num_threads()
        problem = Problem(*q.shape, dtypes.C_INTERFACE[name], causal, threads, scale)
        stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else None
        code = entry(ctypes.byref(problem), *options, *map(_address, given), stream)
        if code:
            reason = said(lambda: self.library.attention_error_string(code).decode(errors="replace"))
            refused = NotImplementedError if code == NO_OPTIONS else RuntimeError
            raise refused(f"{entry.__name__}: {reason} (code {code}, shape {list(q.shape)}, {name})")


@enters_subject
def _address(tensor: Any) -> Any:
    """RuntimeError where it has strides that the C interface cannot be told."""
    if tensor is not None and not tensor.is_contiguous():
        raise RuntimeError(f"expected a contiguous tensor, got strides {list(tensor.stride())}")
    return None if tensor is None else tensor.data_ptr()
