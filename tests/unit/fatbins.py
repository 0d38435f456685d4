"""Fatbin containers made by hand, and shared objects that hold them."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

PTX, CUBIN, INTERMEDIATE = 1, 2, 8


@dataclass(frozen=True)
class Code:
    kind: int
    architecture: int
    size: int = 64

    @property
    def payload(self) -> bytes:
        """Bytes that name what they are of."""
        text = f"{ {PTX: 'ptx', CUBIN: 'cubin'}.get(self.kind, 'other') }{self.architecture}."
        return (text * self.size)[: self.size].encode()


def container(*codes: Code) -> bytes:
    entries = b""
    for code in codes:
        header = struct.pack("<HHIQ", code.kind, 0x101, 64, code.size) + bytes(12)
        entries += header + struct.pack("<I", code.architecture) + bytes(32) + code.payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def shared_object(folder: Path, name: str, sections: dict[str, bytes]) -> Path:
    """A library that loads, with a function `answer` and these sections; compiled by the machine's compiler."""
    lines = []
    for section, data in sections.items():
        blob = folder / f"{name}{section}.bin"
        blob.write_bytes(data)
        flags = "aw" if section == ".data" else "a"
        lines.append(f'.section {section},"{flags}",@progbits\n.balign 8\n.incbin "{blob}"\n')
    lines.append('.section .note.GNU-stack,"",@progbits\n')
    assembly, source, target = folder / f"{name}.s", folder / f"{name}.cpp", folder / name
    assembly.write_text("".join(lines))
    source.write_text('extern "C" int answer() { return 42; }\nint table[4] = {1, 2, 3, 4};\n')
    subprocess.run(["c++", "-shared", "-fPIC", "-o", target, source, assembly], check=True)
    return target
