"""Archives: a tree as a tar, compressed by zstd, in parts of at most a given size."""

from __future__ import annotations

import contextlib
import hashlib
import stat
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from harness.errors import InfrastructureError
from harness.isolate.bundle.manifest import Archive, Part
from harness.isolate.bundle.tools import find_program
from harness.isolate.bundle.tree import BLOCK, Entry, HashingReader, Tally, entries

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
