"""Sections of 64-bit little-endian ELF files, read in place (System V ABI, chapter 4: object files)."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

HEADER_BYTES, SECTION_BYTES = 64, 64
MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
HOLDS_NO_BYTES = 8  # SHT_NOBITS: .bss and its like
MORE_SECTIONS = 0xFFFF  # SHN_XINDEX: the number stands in the first section instead

Bytes = bytes | bytearray | mmap.mmap


@dataclass(frozen=True, kw_only=True)
class Section:
    name: str
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


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
    found = []
    for index in range(count):
        at = table + index * SECTION_BYTES
        name, kind = struct.unpack_from("<II", data, at)
        offset, size_bytes = struct.unpack_from("<QQ", data, at + 0x18)
        if kind == HOLDS_NO_BYTES:
            continue
        end = data.find(b"\0", names + name) if names + name < size else -1
        if end < 0 or offset + size_bytes > size:
            return ()
        text = bytes(data[names + name : end]).decode("latin-1")
        found.append(Section(name=text, offset=offset, size_bytes=size_bytes))
    return tuple(found)
