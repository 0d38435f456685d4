"""What a shared object needs and offers, read from its bytes: no tool of the system, and nothing of it is loaded.

The format is the System V ABI's (chapters 4 and 5), for 64 bits and little-endian. Sections are found by their table,
which `strip` keeps. Standard library alone: the harness's own checks read files with it, too.
"""

from __future__ import annotations

import mmap
import re
import struct
from typing import NamedTuple, Union

HEADER_BYTES, SECTION_BYTES = 64, 64
MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
RELOCATABLE, EXECUTABLE, SHARED = 1, 2, 3  # e_type
DYNAMIC, NO_BYTES, SYMBOLS = 6, 8, 11  # sh_type; without bytes: .bss and its like
MORE_SECTIONS = 0xFFFF  # SHN_XINDEX: the number stands in the first section instead
NEEDED, WEAK = 1, 2  # d_tag, and the binding of a symbol
MACHINES = {3: "i386", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
GPU_CODE = (".nv_fatbin", "__nv_relfatbin", ".hip_fatbin")
MODULE = re.compile(r"PyInit_(\w+)$")
TAG = re.compile(r"\.cpython-3(\d+)|\.cp3(\d+)-")
CALLED = ("attention_forward", "attention_error_string")  # of the C interface, where no binding calls it

Bytes = Union[bytes, bytearray, mmap.mmap]


class Section(NamedTuple):
    """`strings`: where the table begins that its entries take their names from."""

    name: str
    offset: int
    size_bytes: int
    kind: int = 0
    strings: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


class SharedObject(NamedTuple):
    """`undefined` are the symbols that it cannot do without; `modules` those that it is as a Python module."""

    machine: str
    needed: list[str]
    defined: frozenset[str]
    undefined: tuple[str, ...]
    has_gpu_code: bool

    @property
    def modules(self) -> list[str]:
        return sorted(found[1] for name in self.defined for found in [MODULE.match(name)] if found)


def python_of(name: str) -> str:
    """The Python that a file is for by its name, as `3.11`: `mine.cpython-311-x86_64-linux-gnu.so`; else empty."""
    tag = TAG.search(name)
    return f"3.{tag[1] or tag[2]}" if tag else ""


def sections(data: Bytes) -> tuple[Section, ...]:
    """The sections that hold bytes; none for what is no such file, or not a whole one."""
    size = len(data)
    if size < HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
        return ()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    if not table or entry_bytes != SECTION_BYTES or table + SECTION_BYTES > size:
        return ()
    if count == 0:
        (count,) = struct.unpack_from("<Q", data, table + 0x20)
    if names_index == MORE_SECTIONS:
        (names_index,) = struct.unpack_from("<I", data, table + 0x28)
    if table + count * SECTION_BYTES > size or names_index >= count:
        return ()
    (names,) = struct.unpack_from("<Q", data, table + names_index * SECTION_BYTES + 0x18)
    named = []
    for index in range(count):
        at = table + index * SECTION_BYTES
        name, kind = struct.unpack_from("<II", data, at)
        offset, size_bytes, link = struct.unpack_from("<QQI", data, at + 0x18)
        if kind == NO_BYTES:
            continue
        end = data.find(b"\0", names + name) if names + name < size else -1
        if end < 0 or offset + size_bytes > size:
            return ()
        text = bytes(data[names + name : end]).decode("latin-1")
        strings = struct.unpack_from("<Q", data, table + link * SECTION_BYTES + 0x18)[0] if link < count else 0
        named.append(Section(text, offset, size_bytes, kind, strings))
    return tuple(named)


def read(path: str) -> SharedObject:
    """ValueError, in words that begin with what the file is, where it is no shared object; OSError."""
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
            what = {RELOCATABLE: "is an object file, not linked to a shared object", EXECUTABLE: "is a program"}
            raise ValueError(what.get(kind, "is no shared object"))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = sections(data)
            if not found:
                raise ValueError("is cut short, or has no table of sections")
            try:
                return _described(data, found, MACHINES.get(number, f"machine {number}"))
            except (struct.error, IndexError):
                raise ValueError("is damaged: its tables point out of it") from None


def _described(data: mmap.mmap, found: tuple[Section, ...], machine: str) -> SharedObject:
    needed: list[str] = []
    defined, undefined = set(), []
    for section in found:
        if section.kind == DYNAMIC:
            entries = struct.iter_unpack("<QQ", _whole(data, section, 16))
            needed += [_name(data, section.strings + value) for tag, value in entries if tag == NEEDED]
        elif section.kind == SYMBOLS:
            for at, info, _, place, _, _ in struct.iter_unpack("<IBBHQQ", _whole(data, section, 24)):
                binding = info >> 4
                if at and binding and place:  # no local one
                    defined.add(_name(data, section.strings + at))
                elif at and binding and binding != WEAK:
                    undefined.append(_name(data, section.strings + at))
    return SharedObject(
        machine, needed, frozenset(defined), tuple(undefined), any(each.name in GPU_CODE for each in found)
    )


def _whole(data: mmap.mmap, section: Section, entry_bytes: int) -> bytes:
    """A table's bytes, as many as make whole entries."""
    return data[section.offset : section.end - section.size_bytes % entry_bytes]


def _name(data: mmap.mmap, at: int) -> str:
    end = data.find(b"\0", at) if at < len(data) else -1
    if end < 0:
        raise IndexError(at)
    return data[at:end].decode("latin-1")
