"""GPU code inside CUDA libraries: found, and zeroed where no GPU of one architecture would take it.

A library carries the same functions for many architectures in containers ("fatbins"): a header, then entries, each a
header and either machine code (a cubin) or PTX, which the driver compiles. The driver reads one entry of a container.
What it would never read is zeroed in place: no offset changes, headers stay, and a compressor removes the rest.
NVIDIA does not document the format; it was learnt from what nvcc writes, and tests/unit/test_bundling_fatbin.py
compares with nvcc where there is one.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.worker.elf import Bytes, sections

MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of the entries
ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes of the payload
ARCHITECTURE_AT = 28
LEAST_ENTRY_BYTES = 64
ALIGNMENT = 8
PTX, CUBIN = 1, 2
WITH_CONTAINERS = (".nv_fatbin", ".data", ".rodata")  # where libraries keep them
LINK_ONLY = "__nv_relfatbin"  # relocatable device code: nvlink reads it, the driver never does


@dataclass(frozen=True, kw_only=True)
class DeviceCode:
    kind: int
    architecture: int  # compute capability without its dot
    offset: int
    size_bytes: int


def _entries(data: Bytes, start: int, stop: int) -> list[DeviceCode] | None:
    """The entries of one container; None where what lies there is no sequence of entries."""
    entries, at = [], start
    while at < stop:
        if at + LEAST_ENTRY_BYTES > stop:
            return None
        kind, _, header_bytes, size_bytes = ENTRY.unpack_from(data, at)
        payload = at + header_bytes
        if header_bytes < LEAST_ENTRY_BYTES or payload + size_bytes > stop:
            return None
        (architecture,) = struct.unpack_from("<I", data, at + ARCHITECTURE_AT)
        entries.append(DeviceCode(kind=kind, architecture=architecture, offset=payload, size_bytes=size_bytes))
        at = payload + size_bytes
    return entries


def containers(data: Bytes, start: int, end: int) -> Iterator[list[DeviceCode]]:
    """Each container between two offsets, as its entries."""
    at = data.find(MAGIC, start, end)
    while 0 <= at <= end - CONTAINER.size:
        _, _, header_bytes, size_bytes = CONTAINER.unpack_from(data, at)
        first, stop = at + header_bytes, at + header_bytes + size_bytes
        whole = at % ALIGNMENT == 0 and header_bytes == CONTAINER.size and stop <= end
        entries = _entries(data, first, stop) if whole else None
        if entries is not None:
            yield entries
        at = data.find(MAGIC, at + len(MAGIC) if entries is None else stop, end)


def needed(entries: Sequence[DeviceCode], architecture: int) -> list[DeviceCode]:
    """Those that a GPU of this architecture may take: the cubin that fits best, else the nearest lower PTX.

    A cubin runs on its own architecture, and on later ones of the same major version. Entries for 90 and 90a look
    alike, so all of the chosen architecture stay; so does what is neither cubin nor PTX.
    """
    major = architecture // 10
    cubins = [e.architecture for e in entries if e.kind == CUBIN and major * 10 <= e.architecture <= architecture]
    ptx = [e.architecture for e in entries if e.kind == PTX and e.architecture <= architecture]
    kind, best = (CUBIN, max(cubins)) if cubins else (PTX, max(ptx, default=0))
    return [e for e in entries if e.kind not in (CUBIN, PTX) or (e.kind == kind and e.architecture == best)]


def foreign(data: Bytes, architecture: int | None) -> list[tuple[int, int]]:
    """(offset, bytes) of all that a GPU of this architecture never takes from an ELF file; None: of all GPU code."""
    doomed = []
    for section in sections(data):
        if section.name == LINK_ONLY:
            doomed.append((section.offset, section.size_bytes))
        elif section.name in WITH_CONTAINERS:
            for entries in containers(data, section.offset, section.end):
                kept = needed(entries, architecture) if architecture is not None else []
                doomed += [(e.offset, e.size_bytes) for e in entries if e not in kept]
    return doomed


def blank(path: Path, architecture: int | None) -> int:
    """Zero what `foreign` finds in a file; its bytes. A file without GPU code is not written to."""
    if path.stat().st_size < LEAST_ENTRY_BYTES:
        return 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        doomed = foreign(data, architecture)
        for offset, size_bytes in doomed:
            data[offset : offset + size_bytes] = bytes(size_bytes)
        return sum(size_bytes for _, size_bytes in doomed)
