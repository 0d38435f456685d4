"""What a shared object is, and whether it holds a name, read from its bytes: nothing of it is loaded.

The header is the System V ABI's (chapter 4), for 64 bits and little-endian. Standard library alone.
"""

from __future__ import annotations

import mmap
import re
import struct

HEADER_BYTES = 64
MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
# e_type
SHARED = 3
OTHERS = {1: "is an object file, not linked to a shared object", 2: "is a program"}
MACHINES = {3: "i386", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
GPU_CODE = (".nv_fatbin", "__nv_relfatbin", ".hip_fatbin")  # sections
TAG = re.compile(r"\.cpython-3(\d+)|\.cp3(\d+)-")
CALLED = ("attention_forward", "attention_error_string")  # of the C interface, where no binding calls it


def python_of(name: str) -> str:
    """Return the Python that a file is for by its name, as `3.11`: `mine.cpython-311-x86_64-linux-gnu.so`; else
    empty."""
    tag = TAG.search(name)
    return f"3.{tag[1] or tag[2]}" if tag else ""


def machine(path: str) -> str:
    """Return the machine that a shared object is for. ValueError, in words that begin with what the file is, where it
    is none; OSError."""
    with open(path, "rb") as file:
        start = file.read(HEADER_BYTES)
    if start[:4] != MAGIC[:4]:
        raise ValueError("is no ELF file" if start else "is empty")
    if start[:6] != MAGIC:
        raise ValueError("is for 32 bits" if start[4:5] == b"\x01" else "is for big-endian machines")
    if len(start) < HEADER_BYTES:
        raise ValueError("is cut short")
    kind, number = struct.unpack_from("<HH", start, 0x10)
    if kind != SHARED:
        raise ValueError(OTHERS.get(kind, "is no shared object"))
    return MACHINES.get(number, f"machine {number}")


def holds(path: str, *names: str) -> bool:
    """Return whether the tables of names of a shared object hold one of these, of a symbol or of a section."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(data.find(name.encode() + b"\0") >= 0 for name in names)
