"""A GPU's memory that two processes have mapped, from CUDA's virtual memory management.

Unlike CUDA's handles for communication between processes, its allocations are file descriptors: they go wherever a
socket does, into a sandbox with namespaces of its own too (CUDA C++ Programming Guide, "Virtual Memory Management").
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

PINNED, FILE_DESCRIPTOR, DEVICE, READ_WRITE = 1, 1, 1, 3  # of cuda.h's enumerations


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """`CUmemAllocationProp`."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


def _cuda(name: str, *arguments: Any) -> None:
    """Call the driver. RuntimeError with its words where it refuses."""
    library = ctypes.CDLL("libcuda.so.1")
    code = getattr(library, name)(*arguments)
    if code:
        words = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(words))
        raise RuntimeError(f"{name}: {(words.value or b'unknown error').decode()} ({code})")


class _Mapping:
    """Where an allocation lies in this process, until the last tensor that uses it is gone."""

    def __init__(self, handle: ctypes.c_uint64, size_bytes: int) -> None:
        self.size_bytes, self.address = size_bytes, ctypes.c_uint64()
        access = _Access(_Location(DEVICE, torch.cuda.current_device()), READ_WRITE)
        size = ctypes.c_size_t(size_bytes)
        _cuda("cuMemAddressReserve", ctypes.byref(self.address), size, ctypes.c_size_t(0), ctypes.c_uint64(0), 0)
        _cuda("cuMemMap", self.address, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        _cuda("cuMemRelease", handle)
        _cuda("cuMemSetAccess", self.address, size, ctypes.byref(access), ctypes.c_size_t(1))
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (self.address.value, False),
            "version": 3,
        }

    def __del__(self) -> None:
        torch.cuda.synchronize()
        size = ctypes.c_size_t(self.size_bytes)
        _cuda("cuMemUnmap", self.address, size)
        _cuda("cuMemAddressFree", self.address, size)


class DeviceMemory:
    """As `channel.SharedMemory`, on this process's current device; `map` is a tensor of its bytes."""

    def __init__(self, size_bytes: int) -> None:
        torch.zeros(1, device="cuda")  # the driver's calls need a context
        device = torch.cuda.current_device()
        asked = _Properties(PINNED, FILE_DESCRIPTOR, _Location(DEVICE, device), None, (ctypes.c_ubyte * 8)())
        unit = ctypes.c_size_t()
        _cuda("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(asked), 0)
        self.size_bytes = -(-max(1, size_bytes) // unit.value) * unit.value
        handle, file = ctypes.c_uint64(), ctypes.c_int()
        _cuda(
            "cuMemCreate",
            ctypes.byref(handle),
            ctypes.c_size_t(self.size_bytes),
            ctypes.byref(asked),
            ctypes.c_uint64(0),
        )
        _cuda("cuMemExportToShareableHandle", ctypes.byref(file), handle, FILE_DESCRIPTOR, ctypes.c_uint64(0))
        self.file = file.value
        self.map = _as_bytes(_Mapping(handle, self.size_bytes))

    def close(self) -> None:
        """Its memory goes with the last tensor that uses it, in both processes."""
        os.close(self.file)


def mapped(file: int, size_bytes: int) -> Any:
    """Return a tensor of the bytes that another process's `DeviceMemory` has; the descriptor is closed."""
    torch.zeros(1, device="cuda")
    handle = ctypes.c_uint64()
    try:
        _cuda("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(file), FILE_DESCRIPTOR)
    finally:
        os.close(file)
    return _as_bytes(_Mapping(handle, size_bytes))


def _as_bytes(mapping: _Mapping) -> Any:
    return torch.as_tensor(mapping, device="cuda")
