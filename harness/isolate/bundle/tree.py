"""Trees of files: what is in one, in an order that does not depend on the disk, and a digest of it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A folder, a link, a file, or a program: a file that its owner may execute."""

    name: str  # path below the tree's root
    path: Path
    kind: str
    size_bytes: int = 0
    target: str = ""


def entries(root: Path) -> Iterator[Entry]:
    """`root` itself, named '', and all below it, sorted; without devices, pipes and sockets."""
    waiting = [""]
    while waiting:
        name = waiting.pop()
        path = root / name
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            yield Entry(name=name, path=path, kind="link", target=os.readlink(path))
        elif stat.S_ISDIR(status.st_mode):
            yield Entry(name=name, path=path, kind="folder")
            below = sorted(os.listdir(path), reverse=True)
            waiting += [f"{name}/{child}" if name else child for child in below]
        elif stat.S_ISREG(status.st_mode):
            kind = "program" if status.st_mode & stat.S_IXUSR else "file"
            yield Entry(name=name, path=path, kind=kind, size_bytes=status.st_size)


class HashingReader:
    """A file that knows the digest of what was read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.state = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.state.update(data)
        return data


@dataclass
class Tally:
    """Counts and digests entries as they pass: names, kinds, link targets and contents; neither times nor owners.

    Of the modes only the owner's right to execute counts: the others depend on who unpacks.
    """

    bytes: int = 0
    files: int = 0
    state: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, name: str, entry: Entry, content_sha256: str = "") -> None:
        self.bytes += entry.size_bytes
        self.files += 1
        self.state.update(
            "\0".join([name, entry.kind, entry.target or content_sha256, "\n"]).encode("utf-8", "surrogateescape")
        )

    @property
    def sha256(self) -> str:
        return self.state.hexdigest()


def measure(trees: Mapping[str, Path]) -> Tally:
    """The tally of trees on disk: path in an archive ('' for its top) to folder or file."""
    tally = Tally()
    for place, tree in trees.items():
        for entry in entries(tree):
            name = "/".join(part for part in (place, entry.name) if part)
            if name:
                tally.add(name, entry, sha256(entry.path) if entry.kind in ("file", "program") else "")
    return tally


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        reader = HashingReader(file)
        while reader.read(BLOCK):
            pass
    return reader.state.hexdigest()


def resolve(root: Path, name: str) -> Path:
    """Where a path inside a root file system leads, absolute links taken from that root; it need not exist."""
    path, parts = root, [part for part in reversed(name.split("/")) if part not in ("", ".")]
    for _ in range(1000):
        if not parts:
            return path
        part = parts.pop()
        if part == "..":
            path = path.parent if path != root else root
            continue
        path = path / part
        if path.is_symlink():
            target = os.readlink(path)
            path = root if target.startswith("/") else path.parent
            parts += [step for step in reversed(target.split("/")) if step not in ("", ".")]
    raise OSError(f"{name}: links without end")
