"""Transfer: what goes into a sandbox and what comes out of it, as tar streams.

What goes in is the harness's own. What comes out was written by untrusted code: only plain files under
the names that were asked for are taken, up to a size and a count, and nothing that a name or a link says can make
a file appear anywhere else.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from harness.schema.storage import map_strings

BLOCK = 1 << 20
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # this machine's fault, not the sender's
OPEN_FOLDER = 0o777  # a folder that the sandbox's user, unknown here, may fill


class TransferRefused(Exception):
    """What came out is more than it may be."""


def relocate(value: Any, places: Mapping[str, str]) -> Any:
    """Return a JSON value with every path below a key of `places` moved to below its value; the longest key wins."""
    longest_first = sorted(places, key=len, reverse=True)

    def move(text: str) -> str:
        for old in longest_first:
            if text == old or text.startswith(old + "/"):
                return places[old] + text[len(old) :]
        return text

    return map_strings(value, move)


def _information(name: str, *, folder: bool, size_bytes: int = 0, mode: int = 0) -> tarfile.TarInfo:
    information = tarfile.TarInfo(name)
    information.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    information.mode = mode or (0o755 if folder else 0o644)
    information.size = size_bytes
    return information


def pack(
    target: IO[bytes],
    contents: Iterable[tuple[str, Path | bytes]],
    *,
    shared: Iterable[str] = (),
    executable: Collection[str] = (),
) -> None:
    """Write a tar of `contents`, (path inside, what to put there), to the start of a file.

    A folder is packed with the plain files below it, but for hidden ones, which are being written. Folders named in
    `shared` may be written to inside. The same contents give the same bytes: no time, no owner.
    """
    folders: set[str] = set()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in shared:
            tar.addfile(_information(name, folder=True, mode=OPEN_FOLDER))
            folders.add(name)
        for name, source in contents:
            for inside, file, size_bytes in _files(name, source):
                for parent in reversed(PurePosixPath(inside).parents[:-1]):  # whoever unpacks may make them open
                    if str(parent) not in folders:
                        tar.addfile(_information(str(parent), folder=True))
                        folders.add(str(parent))
                mode = 0o755 if inside in executable else 0o644
                tar.addfile(_information(inside, folder=False, size_bytes=size_bytes, mode=mode), file)


def _files(name: str, source: Path | bytes) -> Iterator[tuple[str, IO[bytes], int]]:
    """Yield (path inside, content, size in bytes) of what is packed under a name."""
    if isinstance(source, bytes):
        yield name, io.BytesIO(source), len(source)
        return
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
            with path.open("rb") as file:
                inside = name if path == source else f"{name}/{path.relative_to(source)}"
                yield inside, file, os.fstat(file.fileno()).st_size


def unpack(source: IO[bytes], places: Mapping[str, Path], *, limit_bytes: int, limit_files: int) -> None:
    """Write the plain files of a tar stream below `places`, keyed by the first part of their names.

    Names that lead elsewhere are left out. For a link, a device or a pipe an empty file stands, so that it is no output
    and yet not nothing. Refused where the files are
    larger or more than the limits, or have names that this disk cannot hold; what was written until then stays, and is
    the caller's to remove.
    """
    total, files = 0, 0
    with tarfile.open(fileobj=source, mode="r|") as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            if not parts or parts[0] not in places or ".." in parts or "\0" in member.name:
                continue
            target, plain = places[parts[0]].joinpath(*parts[1:]), member.isreg()
            total, files = total + (member.size if plain else 0), files + 1
            if total > limit_bytes or files > limit_files:
                raise TransferRefused(f"left more than {limit_bytes} bytes or {limit_files} files")
            try:
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    if plain and (content := tar.extractfile(member)):
                        shutil.copyfileobj(content, file, BLOCK)
            except OSError as error:
                if error.errno in DISK:
                    raise
                raise TransferRefused(
                    f"left a file that cannot be kept: {error.strerror}: {member.name[:80]!r}"
                ) from None
