"""Memory filled with a pattern just before the kernel runs: what depends on the pattern reads what nobody wrote.

Sites: `output`, and `workspace`, what PyTorch's allocator hands out next; `around` each input, before and behind it;
`heap` and `stack` of this process; `shared`, all shared memory of all SMs. A pattern is a tile of bytes, repeated.
`nan` is a NaN in every dtype, and read as float32 too (accumulators are); so is `max` a large finite number, and
`random` numbers of either sign between 2 and 8 (float16) or 131072: bits at random would often be too small to show.

The heap is that of glibc. Two of its settings serve here: M_PERTURB fills whatever malloc gives, to every thread, with
one byte, so `zero` and `max` reach all of it (0x00; 0x7B: 61280 in float16, 1.3e36 in bfloat16 and float32). It cannot
fill with 0xFF, and so neither with NaN, and it passes by the small blocks that a thread keeps for itself: the harness
starts the process so that none does (GLIBC_TUNABLES). Blocks of many sizes are filled and freed besides, with no block
outside the heap's main arena, in which they stay.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any, Callable, NamedTuple

import numpy as np
import torch

from . import native, protocol, tensors, wire

TILE_BYTES = 4096
AROUND_BYTES, ALIGNED_BYTES = 1 << 16, 512
SEED = 20250101
LARGEST = {"float16": "ff7b", "bfloat16": "7f7f", "float32": "ffff7f7f"}  # the bytes in memory, little end first
M_TRIM_THRESHOLD, M_MMAP_MAX, M_PERTURB, M_ARENA_MAX = -1, -4, -6, -8  # malloc.h
PERTURB = {"zero": 0x00 ^ 0xFF, "max": 0x7B ^ 0xFF}  # malloc fills with the complement
SMALL = [(size, 8) for size in range(24, 1040, 16)]  # bytes and count: seven of each a thread keeps for itself
MEDIUM = [(int(1100 * 1.19**step), 4) for step in range(40)]  # to 1 MiB
LARGEST_BLOCK = 32 << 20
DEVICE_BLOCKS = [(512 << step, 8) for step in range(12)] + [(2 << 20 << step, 2) for step in range(6)]  # to 64 MiB
METH_NOARGS = 4
OPENMP = re.compile("libgomp|libiomp|libomp")


def unavailable(why: str) -> wire.Failed:
    """A site cannot be reached here."""
    return wire.Failed(protocol.NOT_RUN, why)


def tile(pattern: str, dtype: str) -> bytes:
    """Return the pattern's bytes for a workload of `dtype`."""
    if pattern == "random":
        words = np.random.Philox(key=np.array([SEED, 0], dtype=np.uint64)).random_raw(TILE_BYTES // 8)
        data: bytes = (words.view(np.uint16) & np.uint16(0x87FF) | np.uint16(0x4000)).tobytes()
        return data
    largest = bytes.fromhex(LARGEST.get(dtype, LARGEST["float32"]))
    unit = {"zero": b"\0", "nan": b"\xff", "max": largest}[pattern]
    return unit * (TILE_BYTES // len(unit))


@functools.lru_cache(maxsize=None)
def _on_device(data: bytes, device: str) -> Any:
    """Kept for good: memory that held a pattern and was freed would be met again by a kernel's own allocations."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)


def fill(tensor: Any, data: bytes) -> Any:
    """Fill a tensor's whole memory with the bytes, repeated; what shares that memory too."""
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    pattern = _on_device(data, str(tensor.device))
    whole = raw.numel() // len(data)
    raw[: whole * len(data)].view(whole, len(data)).copy_(pattern)
    rest = raw[whole * len(data) :]
    rest.copy_(pattern[: rest.numel()])
    return tensor


class PrefillRequest(NamedTuple):
    """What memory is to hold: the bytes of a pattern. `size_bytes`: of the largest block that a kernel may ask for;
    `library`: the probe that reaches the site, where it takes one."""

    device: str
    pattern: str
    data: bytes
    size_bytes: int
    library: str | None


class Output:
    """The output is filled where it is made (`kernels.Extension.bind`): nothing is left to do before the call."""

    def __init__(self, wanted: PrefillRequest) -> None:
        self.wanted, self.data = wanted, wanted.data

    def place(self, tensor: Any) -> Any:
        """Return an input's elements where this site needs them."""
        return tensor

    def before(self) -> None:
        """Fill the site, just before the call."""

    def after(self) -> None:
        """Clean up, once the output has been read."""


class Around(Output):
    """Each input lies between two stretches of memory that hold the pattern; what is not contiguous stays as it is.

    It starts on a multiple of 512 bytes, as far apart as an allocator of PyTorch's places its blocks on a GPU. The
    stretches are cleared after the call: what a kernel allocates next may be this memory, and to read that before it
    is written is another fault (`heap`, `workspace`)."""

    def __init__(self, wanted: PrefillRequest) -> None:
        super().__init__(wanted)
        self.filled: list[Any] = []

    def place(self, tensor: Any) -> Any:
        size = tensor.numel() * tensor.element_size()
        if not size or not tensor.is_contiguous():
            return tensor
        raw = fill(torch.empty(size + 2 * AROUND_BYTES, dtype=torch.uint8, device=tensor.device), self.data)
        self.filled.append(raw)
        start = AROUND_BYTES - (raw.data_ptr() + AROUND_BYTES) % ALIGNED_BYTES
        return raw[start : start + size].view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def after(self) -> None:
        filled, self.filled = self.filled, []
        if not tensors.lost(self.wanted.device):
            for raw in filled:
                raw.zero_()


class Workspace(Output):
    """Blocks of many sizes from PyTorch's allocator, filled and freed. Those it held before are given back first."""

    def before(self) -> None:
        device = self.wanted.device
        if device == "cuda":
            torch.cuda.empty_cache()
        sizes = [size for size, count in (*DEVICE_BLOCKS, (self.wanted.size_bytes, 2)) for _ in range(count)]
        held = [fill(torch.empty(size, dtype=torch.uint8, device=device), self.data) for size in sizes]
        del held


def keep_to_one_arena() -> None:
    """Early, before there are threads: what one thread frees, another then gets. Nothing where this is not glibc."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_ARENA_MAX, 1)


class Heap(Output):
    def __init__(self, wanted: PrefillRequest) -> None:
        super().__init__(wanted)
        self.libc = ctypes.CDLL(None)
        if not hasattr(self.libc, "mallopt") or not hasattr(self.libc, "gnu_get_libc_version"):
            raise unavailable("the C library is not glibc: its heap cannot be filled")
        self.libc.malloc.restype = ctypes.c_void_p
        self.libc.malloc.argtypes = [ctypes.c_size_t]
        self.libc.free.argtypes = [ctypes.c_void_p]
        blocks = [*SMALL, *MEDIUM, (max(LARGEST_BLOCK, wanted.size_bytes), 1)]
        self.sizes = [size for size, count in blocks for _ in range(count)]
        self.data = wanted.data * (max(self.sizes) // len(wanted.data) + 1)
        self.perturb = PERTURB.get(wanted.pattern, 0)

    def _set(self, option: int, value: int) -> None:
        if self.libc.mallopt(option, value) != 1:
            raise unavailable(f"mallopt refuses option {option}: the heap cannot be filled")

    def before(self) -> None:
        self._set(M_MMAP_MAX, 0)  # large blocks come from the heap too, not fresh and zero from the system
        self._set(M_TRIM_THRESHOLD, 2**31 - 1)
        self._set(M_PERTURB, 0)
        held = [self.libc.malloc(size) for size in self.sizes]
        for address, size in zip(held, self.sizes):
            if address:
                ctypes.memmove(address, self.data, size)
        for address in held:
            self.libc.free(address)
        self._set(M_PERTURB, self.perturb)

    def after(self) -> None:
        self._set(M_PERTURB, 0)


class Stack(Output):
    """Of the calling thread, of the threads of OpenMP's pools, and of threads yet to come (csrc/probes/poison.cpp)."""

    def __init__(self, wanted: PrefillRequest) -> None:
        super().__init__(wanted)
        self.probe = load(wanted.library)
        self.probe.poison_pattern.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.fill_calling = as_builtin(self.probe, "poison_calling_stack")
        self.threads = max(2, torch.get_num_threads())
        self.pools = [ctypes.CDLL(path) for path in sorted(native.loaded(OPENMP))]

    def before(self) -> None:
        self.probe.poison_pattern(self.data, len(self.data))
        self.probe.poison_new_threads(self.threads)
        for pool in self.pools:
            if hasattr(pool, "GOMP_parallel"):
                pool.GOMP_parallel(self.probe.poison_stack, None, self.threads, 0)
        self.fill_calling()


class Shared(Output):
    """Of every SM, on the kernel's own stream (csrc/probes/poison.cu)."""

    def __init__(self, wanted: PrefillRequest) -> None:
        super().__init__(wanted)
        self.probe = load(wanted.library)
        self.probe.poison_shared.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
        self.probe.poison_error.restype = ctypes.c_char_p

    def before(self) -> None:
        code = self.probe.poison_shared(self.data, len(self.data), torch.cuda.current_stream().cuda_stream)
        if code:
            raise unavailable(f"shared memory cannot be filled: {self.probe.poison_error(code).decode()}")


SITES = {"output": Output, "around": Around, "workspace": Workspace, "heap": Heap, "stack": Stack, "shared": Shared}


def load(library: str | None) -> ctypes.CDLL:
    if not library:
        raise unavailable("the probe that fills it could not be built")
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        raise unavailable(f"the probe that fills it cannot be loaded: {error}") from None


class MethodDef(ctypes.Structure):
    """CPython's PyMethodDef (methodobject.h)."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_definitions: list[MethodDef] = []  # a built-in function keeps no reference to its own


def as_builtin(library: ctypes.CDLL, name: str) -> Callable[[], object]:
    """A library's function PyObject *(PyObject *self, PyObject *) as a built-in function of Python's, self None."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    _definitions.append(MethodDef(name.encode(), address, METH_NOARGS, None))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    builtin: Callable[[], object] = make(ctypes.addressof(_definitions[-1]), None, None)
    return builtin
