"""tools.tar: the programs that unpacking needs, with the loader and the libraries that they need.

They are this machine's own. Started through the loader that they bring, they run whatever C library the target has.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from harness.errors import InfrastructureError
from harness.isolate.transfer import pack
from harness.tools import output_of

PROGRAMS = ("zstd", "sha256sum")
LOADER = Path("/lib64/ld-linux-x86-64.so.2")
LIBRARY = re.compile(r"^\s*(\S+) => (/\S+) \(0x", re.MULTILINE)


def find_program(name: str) -> Path:
    path = shutil.which(name)
    if path is None:
        raise InfrastructureError(f"{name} is not on this machine", f"apt-get install {name}")
    return Path(path)


def libraries(program: Path) -> dict[str, Path]:
    """What a program loads: name to file. InfrastructureError where the loader cannot tell."""
    printed = output_of([str(LOADER), "--list", str(program)])
    if printed is None or "not found" in printed:
        raise InfrastructureError(
            f"{program}: its libraries cannot be listed: {(printed or '').strip()}", f"{LOADER} --list {program}"
        )
    return {name: Path(path) for name, path in LIBRARY.findall(printed)}


def pack_tools(target: Path) -> None:
    """Write tools.tar: `loader`, bin/ and lib/."""
    programs = {name: find_program(name) for name in PROGRAMS}
    found: dict[str, Path] = {}
    for program in programs.values():
        found |= libraries(program)
    contents: list[tuple[str, Path | bytes]] = [("loader", LOADER.resolve())]
    contents += [(f"bin/{name}", path.resolve()) for name, path in programs.items()]
    contents += [(f"lib/{name}", path.resolve()) for name, path in sorted(found.items())]
    with target.open("wb") as file:
        pack(file, contents, executable=[name for name, _ in contents])
