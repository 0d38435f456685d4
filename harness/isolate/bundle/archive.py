"""Archives: a tree of files as a tar, compressed by zstd, in parts of at most a given size, and its digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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


class Content(NamedTuple):
    kind: str
    value: str  # a link's target, or the SHA-256 of what a file holds
    size_bytes: int


class Tally(dict[str, Content]):
    """What trees hold, by path: kinds, link targets and contents; neither times nor owners.

    Of the modes only the owner's right to execute counts: the others depend on who unpacks.
    """

    @property
    def bytes(self) -> int:
        return sum(content.size_bytes for content in self.values())

    @property
    def sha256(self) -> str:
        state = hashlib.sha256()
        for name, content in self.items():
            state.update("\0".join([name, content.kind, content.value, "\n"]).encode("utf-8", "surrogateescape"))
        return state.hexdigest()


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
        value = protocol.sha256_file(str(entry.path)) if entry.has_content else entry.target
        tally[name] = Content(entry.kind, value, entry.size_bytes)
    return tally


BYTECODE = re.compile(r"__pycache__/([^/.]+)\.[^/]+\.pyc$")


def difference(tally: Tally, like: Tally) -> tuple[Tally, list[str]]:
    """(what `like` lacks or has otherwise, what must leave `like` before that is put there) for it to become `tally`.

    Bytecode names the time of its source. Where the source is the same, the file of `like` serves with its time, so
    its bytecode must too: `tally` is given it.
    """
    for name in tally.keys() & like.keys():
        source = BYTECODE.sub(r"\1.py", name)
        if source != name and source in tally and tally[source] == like.get(source):
            tally[name] = like[name]
    other = Tally((name, content) for name, content in tally.items() if like.get(name) != content)
    lost = {name for name, content in like.items() if tally.get(name) != content}
    return other, sorted(name for name in lost if os.path.dirname(name) not in lost)


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


def most_alike(tally: Tally, others: Mapping[str, Tally]) -> str:
    """The one of `others` that has most of the tally's bytes at the same paths, if it has half of them; '' for none."""
    shared = {
        name: sum(content.size_bytes for path, content in tally.items() if other.get(path) == content)
        for name, other in others.items()
    }
    best = max(shared, key=lambda name: shared[name], default="")
    return best if best and 2 * shared[best] >= tally.bytes else ""


def pack_archive(
    name: str, trees: Mapping[str, Path], folder: Path, before: Mapping[str, Tally], *, part_bytes: int, level: int
) -> tuple[Archive, list[Part], Tally]:
    """Pack trees, path in the archive ('' for its top) to folder or file, into parts in `folder`: whole, or the
    difference to the archive packed before, of those by name in `before`, that is most alike."""
    tally = measure(trees)
    like = most_alike(tally, before)
    other, gone = difference(tally, before[like]) if like else (tally, [])
    compress = [str(find_program("zstd")), "-qc", "-T0", f"-{level}", f"--long={WINDOW}"]
    cut = ["split", "-d", "--suffix-length=4", f"--bytes={part_bytes}", "-", str(folder / f"{name}.tar.zst.")]
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
                    if inside in other:
                        with entry.path.open("rb") if entry.has_content else contextlib.nullcontext() as file:
                            tar.addfile(header(inside, entry), file)
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
    archive = Archive(
        packed_bytes=sum(part.bytes for part in parts),
        unpacked_bytes=other.bytes,
        files=len(other),
        tree_sha256=tally.sha256,
        like=like,
        gone=gone,
    )
    return archive, parts, tally


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
