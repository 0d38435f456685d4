"""A packed bundle, unpacked once on this machine: by the first run that needs it, for all that come after.

They lie below KERNEL_MATRIX_UNPACKED, by default in /var/tmp, each under its manifest's digest. At most
KERNEL_MATRIX_UNPACKED_GIB (64 by default) of them stay: those that were used longest ago make room, but none that a
process uses. A node of a cluster so unpacks from the shared file system once, and not for every job.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.errors import InfrastructureError, InputError
from harness.isolate.bundle.manifest import COMPLETE, CONTENTS
from harness.tools import GIB, cache_lock

FOLDER, ROOM = "KERNEL_MATRIX_UNPACKED", "KERNEL_MATRIX_UNPACKED_GIB"
_in_use: dict[Path, int] = {}  # open files whose locks say that this process uses a bundle


def unpacked(folder: Path) -> Path:
    """The bundle in `folder` as it is where it is unpacked already, else unpacked on this machine. InputError or
    InfrastructureError where that cannot be done."""
    if not (folder / CONTENTS).is_file() or (folder / COMPLETE).is_file():
        return folder
    name, size = contents(folder / CONTENTS)
    base = own_folder()
    bundles = base / "bundles"
    bundles.mkdir(parents=True, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise InputError(f"{base}: belongs to another user", f"{FOLDER}=DIR names a folder of yours")
    place = bundles / name
    with cache_lock(base, "unpack"):
        _use(place)
        if not (place / COMPLETE).is_file():
            _make_room(bundles, size)
            print(f"unpacking {folder} into {place}", flush=True)
            _unpack(folder, place)
    return place


def own_folder() -> Path:
    """Where bundles are unpacked on each machine."""
    return Path(os.environ.get(FOLDER) or f"/var/tmp/kernel-matrix-{os.getuid()}")


def contents(path: Path) -> tuple[str, int]:
    """What a packed bundle's folder is called once it is unpacked, and the bytes that it then takes."""
    lines = [line.split() for line in path.read_text().splitlines()]
    digests = [words[1] for words in lines if words[:1] == ["manifest"] and len(words) == 2]
    if len(digests) != 1 or not digests[0].isalnum():
        raise InputError(f"{path}: damaged", "copy the bundle again")
    return digests[0][:16], sum(int(words[2]) for words in lines if words[:1] == ["archive"])


def _use(place: Path) -> None:
    """Until this process ends nobody removes it, and it counts as used now."""
    lock = _lock(place)
    if place not in _in_use:
        _in_use[place] = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(_in_use[place], fcntl.LOCK_SH)
    os.utime(lock)


def _lock(place: Path) -> Path:
    return place.with_name(f"{place.name}.used")


def _make_room(bundles: Path, size: int) -> None:
    """Remove what was used longest ago, until what is needed fits."""
    room = float(os.environ.get(ROOM) or 64) * GIB
    there = {path: _size(path) for path in bundles.iterdir() if path.is_dir()}
    for path in sorted(there, key=_last_used):
        if size + sum(there.values()) <= room and shutil.disk_usage(bundles).free >= size:
            return
        if _is_free(path):
            shutil.rmtree(path, ignore_errors=True)
            _lock(path).unlink(missing_ok=True)
            del there[path]


def _last_used(path: Path) -> float:
    lock = _lock(path)
    return lock.stat().st_mtime if lock.exists() else 0.0


def _is_free(place: Path) -> bool:
    """Whether no process uses it. Nobody begins to meanwhile: who does holds the lock of unpacking."""
    if not _lock(place).exists():
        return True
    file = os.open(_lock(place), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _size(folder: Path) -> int:
    """Bytes, a file of several names once."""
    files = (path.lstat() for path in folder.rglob("*") if not path.is_symlink())
    return sum({file.st_ino: file.st_size for file in files}.values())


def _unpack(folder: Path, place: Path) -> None:
    done = subprocess.run(["sh", str(folder / "unpack.sh"), str(place)], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["unpack.sh failed"]
        remedy = next((line.partition("remedy: ")[2] for line in said if "remedy: " in line), "see above")
        print(done.stdout, file=sys.stderr, end="")
        raise InfrastructureError(said[0], remedy)
