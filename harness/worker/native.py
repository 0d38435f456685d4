"""Shared objects in this process, and the machine code that a Python kernel brings along.

A Python file that is the same in two environments may compile other code in each: through a compiler that it starts,
`torch.utils.cpp_extension`, or a file that it finds. So the code is read where it runs, from the process's memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import sys
from typing import Collection, Iterable

from . import components, protocol

# Of the system, of Python and of PyTorch with what it brings: the environment's, which its record names.
ENVIRONMENT = ("/usr/", "/lib/", "/lib64/", "/proc/", "/dev/")


def mapped() -> dict[str, list[tuple[int, int]]]:
    """{file: [(start, end)] of its readable and executable parts in this process}; deleted files too."""
    found: dict[str, list[tuple[int, int]]] = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/") and fields[1].startswith("r-x"):
                start, end = (int(part, 16) for part in fields[0].split("-"))
                found.setdefault(fields[5].strip(), []).append((start, end))
    return found


def loaded(pattern: re.Pattern[str]) -> list[str]:
    """Paths of the shared objects in this process whose file names match, in the order of their addresses."""
    return [path for path in mapped() if pattern.match(os.path.basename(path))]


def described(path: str) -> str:
    """A library by its place in its environment, or its file name where it is the system's; CUDA's with its version."""
    name = path.rsplit("/site-packages/", maxsplit=1)[-1] if "/site-packages/" in path else os.path.basename(path)
    version = components.version_of(path)
    return f"{name} ({version})" if version else name


def brought(before: Collection[str]) -> dict[str, str]:
    """{file name: SHA-256 of its machine code} of what was mapped since `before` (of `mapped`) and is none of
    the environment's. What torch.compile generated is none of the file's own: `generated` tells of that."""
    import torch

    packages = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    places = [sys.prefix, sys.base_prefix, packages, *filter(None, map(os.environ.get, protocol.CACHES))]
    known = (*ENVIRONMENT, *(os.path.join(place, "") for place in places))
    return {
        os.path.basename(path.split(" (deleted)")[0]): _sha256(parts)
        for path, parts in sorted(mapped().items())
        if path not in before and not path.startswith(known)
    }


def _sha256(parts: Iterable[tuple[int, int]]) -> str:
    sha256 = hashlib.sha256()
    for start, end in parts:
        sha256.update(ctypes.string_at(start, end - start))
    return sha256.hexdigest()
