"""Archives: a tree of files as a tar, compressed by zstd, in parts of at most a given size, and its digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.errors import InfrastructureError
from harness.isolate.bundle.manifest import Archive, Part
from harness.worker import protocol

BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A folder, a link, a file, or a program: a file that its owner may execute."""

    name: str  # path below the tree's root
    path: Path
    kind: str
    size_bytes: int = 0
    target: str = ""

    @property
    def has_content(self) -> bool:
        return self.kind in ("file", "program")


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


def _walk(trees: Mapping[str, Path]) -> Iterator[tuple[str, Entry]]:
    """What is in an archive of these trees, by its name there."""
    for place, tree in trees.items():
        for entry in entries(tree):
            name = "/".join(filter(None, (place, entry.name)))
            if name:
                yield name, entry


def measure(trees: Mapping[str, Path]) -> Tally:
    """The tally of trees on disk: path in an archive ('' for its top) to folder or file."""
    tally = Tally()
    for name, entry in _walk(trees):
        tally.add(name, entry, protocol.sha256_file(str(entry.path)) if entry.has_content else "")
    return tally


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


WINDOW = 27  # log2 of the bytes that zstd looks back; unpacking needs as much memory, 128 MiB


def pack_archive(
    name: str, trees: Mapping[str, Path], folder: Path, *, part_bytes: int, level: int
) -> tuple[Archive, list[Part]]:
    """Pack trees, path in the archive ('' for its top) to folder or file, into parts in `folder`."""
    compress = [str(find_program("zstd")), "-qc", "-T0", f"-{level}", f"--long={WINDOW}"]
    cut = ["split", "-d", "--suffix-length=4", f"--bytes={part_bytes}", "-", str(folder / f"{name}.tar.zst.")]
    tally = Tally()
    with (
        subprocess.Popen(compress, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as zstd,
        subprocess.Popen(cut, stdin=zstd.stdout, stderr=subprocess.PIPE, text=True) as split,
    ):
        assert zstd.stdin is not None and zstd.stdout is not None
        zstd.stdout.close()  # it is split's alone: when that ends, zstd does
        try:
            with (
                contextlib.suppress(BrokenPipeError),  # an exit status says why
                tarfile.open(fileobj=zstd.stdin, mode="w|", format=tarfile.GNU_FORMAT, bufsize=BLOCK) as tar,
            ):
                for inside, entry in _walk(trees):
                    _add(tar, tally, inside, entry)
        finally:
            with contextlib.suppress(BrokenPipeError):
                zstd.stdin.close()
        _, said = split.communicate()
    if split.returncode:
        raise InfrastructureError(f"{name} cannot be written: {said.strip()}", "free some space, or name another --out")
    if zstd.returncode:
        raise InfrastructureError(f"zstd exited with {zstd.returncode} while it packed {name}", "is memory free?")
    parts = [
        Part(name=path.name, sha256=protocol.sha256_file(str(path)), bytes=path.stat().st_size, archive=name)
        for path in sorted(folder.glob(f"{name}.tar.zst.*"))
    ]
    return Archive(
        packed_bytes=sum(part.bytes for part in parts),
        unpacked_bytes=tally.bytes,
        files=tally.files,
        tree_sha256=tally.sha256,
    ), parts


def _add(tar: tarfile.TarFile, tally: Tally, inside: str, entry: Entry) -> None:
    if not entry.has_content:
        tar.addfile(header(inside, entry))
        tally.add(inside, entry)
        return
    with entry.path.open("rb") as file:
        reader = HashingReader(file)
        tar.addfile(header(inside, entry), reader)
    tally.add(inside, entry, reader.state.hexdigest())


def header(name: str, entry: Entry) -> tarfile.TarInfo:
    """No owner, no set-user-id; times stay: Python trusts stored bytecode by its source's."""
    status = entry.path.lstat()
    information = tarfile.TarInfo(name)
    information.mtime = int(status.st_mtime)
    information.mode = stat.S_IMODE(status.st_mode) & 0o777 | (0o700 if entry.kind == "folder" else 0o600)
    information.type = {"link": tarfile.SYMTYPE, "folder": tarfile.DIRTYPE}.get(entry.kind, tarfile.REGTYPE)
    information.linkname = entry.target
    information.size = entry.size_bytes
    return information


def find_program(name: str) -> Path:
    path = shutil.which(name)
    if path is None:
        raise InfrastructureError(f"{name} is not on this machine", f"apt-get install {name}")
    return Path(path)
