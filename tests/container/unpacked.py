"""What tests of an unpacked bundle ask of it: its files, its mounts, and who reaches it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pynvml  # noqa: F401 - before a fork becomes another user, who may not be able to read this Python's packages

NOBODY = 65534


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder to its change time and mode: writing, creating and removing change one of them."""
    found = {}
    for place, _, names in os.walk(folder):
        for path in [place, *(os.path.join(place, name) for name in names)]:
            status = os.lstat(path)
            found[path] = (status.st_ctime_ns, status.st_mode)
    return found


def readable(path: Path) -> bool:
    """Whether any user reaches a file by its path."""
    real = path.resolve()
    return all(part.stat().st_mode & stat.S_IXOTH for part in real.parents) and bool(real.stat().st_mode & 4)


def mounted(path: str) -> list[str]:
    """Processes whose mount table names a path."""
    found = []
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if path in table.read_text():
                found.append(table.parent.name)
        except OSError:
            continue  # it ended meanwhile
    return found
