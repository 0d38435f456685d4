"""Archives: a tree of files as a tar, compressed by zstd, in parts of at most a given size, and its digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.errors import InfrastructureError
from harness.isolate.bundle.manifest import Archive, Part

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


WINDOW = 27  # log2 of the bytes that zstd looks back; unpacking needs as much memory, 128 MiB


class Parts:
    """Writes a stream as files NAME.000, NAME.001, ... of at most `part_bytes`."""

    def __init__(self, folder: Path, name: str, archive: str, part_bytes: int) -> None:
        self.folder, self.name, self.archive, self.part_bytes = folder, name, archive, part_bytes
        self.done: list[Part] = []

    def take(self, stream: IO[bytes]) -> None:
        while block := stream.read(min(BLOCK, self.part_bytes)):
            name = f"{self.name}.{len(self.done):03d}"
            state, size = hashlib.sha256(), 0
            with (self.folder / name).open("wb") as file:
                while block:
                    file.write(block)
                    state.update(block)
                    size += len(block)
                    block = stream.read(min(BLOCK, self.part_bytes - size)) if size < self.part_bytes else b""
            self.done.append(Part(name=name, sha256=state.hexdigest(), bytes=size, archive=self.archive))


def pack_archive(
    name: str, trees: Mapping[str, Path], folder: Path, *, part_bytes: int, level: int
) -> tuple[Archive, list[Part]]:
    """Pack trees, path in the archive ('' for its top) to folder or file, into parts in `folder`."""
    command = [str(find_program("zstd")), "-qc", "-T0", f"-{level}", f"--long={WINDOW}"]
    parts, tally = Parts(folder, f"{name}.tar.zst", name, part_bytes), Tally()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as zstd:
        assert zstd.stdin is not None and zstd.stdout is not None
        failed: list[BaseException] = []

        def collect(stream: IO[bytes]) -> None:
            try:
                parts.take(stream)
            except BaseException as error:  # a full disk, for instance: zstd must not wait for a reader
                failed.append(error)
                zstd.kill()

        reader = threading.Thread(target=collect, args=(zstd.stdout,))
        reader.start()
        try:
            with (
                contextlib.suppress(BrokenPipeError),  # zstd's exit status, or what ended the reader, says why
                tarfile.open(fileobj=zstd.stdin, mode="w|", format=tarfile.GNU_FORMAT, bufsize=BLOCK) as tar,
            ):
                for place, tree in trees.items():
                    _add(tar, tally, place, tree)
        finally:
            with contextlib.suppress(BrokenPipeError):
                zstd.stdin.close()
            reader.join()
    if failed:
        raise failed[0]
    if zstd.returncode:
        raise InfrastructureError(f"zstd exited with {zstd.returncode} while it packed {name}", "is memory free?")
    return Archive(
        packed_bytes=sum(part.bytes for part in parts.done),
        unpacked_bytes=tally.bytes,
        files=tally.files,
        tree_sha256=tally.sha256,
    ), parts.done


def _add(tar: tarfile.TarFile, tally: Tally, place: str, tree: Path) -> None:
    for entry in entries(tree):
        inside = "/".join(part for part in (place, entry.name) if part)
        information = header(inside, entry)
        if entry.kind in ("file", "program"):
            with entry.path.open("rb") as file:
                reader = HashingReader(file)
                tar.addfile(information, reader)
            tally.add(inside, entry, reader.state.hexdigest())
        elif inside:
            tar.addfile(information)
            tally.add(inside, entry)


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
