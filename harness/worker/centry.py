"""A kernel's C entry point (csrc/attention.h) without its binding: a plain shared object, called through ctypes.

The object leaves the CUDA and OpenMP runtimes undefined. They are resolved by those that this PyTorch has loaded, as
they are for an extension: the machine code is another environment's, the runtime is this one's.
"""

import ctypes
import os
import re

import torch

from . import dtypes, kernels, tensors

RESOLVED_HERE = re.compile(r"lib(cudart|gomp|iomp5|omp)[.-].*so")
TOLD = re.compile(r"lib(cudart|gomp|iomp5|omp|stdc\+\+|c)[.-].*so")


class Problem(ctypes.Structure):
    """`attention_problem`."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("batch", "heads", "seq_len", "head_dim", "dtype", "causal", "threads")),
        ("scale", ctypes.c_float),
    ]


class Library(kernels.Extension):
    """A kernel from a plain shared object, bound and called as one from an extension is.

    `note` names the runtime libraries that were loaded, each by its place in its environment.
    """

    returns = False
    chooses = None  # what it says is asked of the extension that it was taken from

    def __init__(self, path, workload):
        with kernels.blamed(f"loading {os.path.basename(path)}"):
            for name in loaded(RESOLVED_HERE):
                ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)  # it is loaded: this lets others find what is in it
            self.library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            self.entry = self.library.attention_forward
            self.entry.argtypes = [ctypes.POINTER(Problem), *[ctypes.c_void_p] * 5]
            self.entry.restype = ctypes.c_int
            self.library.attention_error_string.argtypes = [ctypes.c_int]
            self.library.attention_error_string.restype = ctypes.c_char_p
        self.rest = (bool(workload.causal), float(workload.scale))
        self.note = ", ".join(described(name) for name in loaded(TOLD))

    def forward(self, q, k, v, out, causal, scale):
        """As the shipped binding's: on a GPU queued on the current stream. RuntimeError where the kernel refuses."""
        name = tensors.dtype_name(q)
        threads = 0 if q.is_cuda else torch.get_num_threads()
        problem = Problem(*q.shape, dtypes.C_INTERFACE[name], causal, threads, scale)
        stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else None
        code = self.entry(ctypes.byref(problem), *(tensor.data_ptr() for tensor in (q, k, v, out)), stream)
        if code:
            said = kernels.said(lambda: self.library.attention_error_string(code).decode(errors="replace"))
            raise RuntimeError(f"attention_forward: {said} (code {code}, shape {list(q.shape)}, {name})")


def loaded(pattern):
    """Paths of the shared objects in this process whose file names match, in the order of their addresses."""
    with open("/proc/self/maps") as file:
        paths = [line.split(None, 5)[5].strip() for line in file if len(line.split(None, 5)) > 5]
    return list(dict.fromkeys(path for path in paths if pattern.match(os.path.basename(path))))


def described(path):
    """A library by its place in its environment, or its file name where it is the system's; CUDA's with its version."""
    name = path.split("/site-packages/")[-1] if "/site-packages/" in path else os.path.basename(path)
    if not os.path.basename(path).startswith("libcudart"):
        return name
    version = ctypes.c_int(0)
    failed = ctypes.CDLL(path).cudaRuntimeGetVersion(ctypes.byref(version))
    return name if failed else f"{name} ({version.value // 1000}.{version.value % 1000 // 10})"
