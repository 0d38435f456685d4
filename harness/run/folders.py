"""Run folders: one a plan, found again by the plan's digest, held by one process at a time."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from harness.errors import InfrastructureError, RecordError
from harness.progress import printable
from harness.schema.storage import AnyRecord, Run, load_record
from harness.tools import cache_folder, lock_file
from harness.worker import protocol


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def now_utc() -> str:
    return now().isoformat(timespec="seconds")


def runs_folder(root: Path) -> Path:
    return root / "reports" / "runs"


def all_runs(root: Path) -> list[Run]:
    """Every run with a run.json, newest first."""
    folders = [path for path in runs_folder(root).glob("*") if (path / "run.json").is_file()]
    return [Run(path) for path in sorted(folders, key=_order, reverse=True)]


def _order(folder: Path) -> tuple[str, int]:
    """(stamp, number among those of this stamp) of a run's folder: <stamp>[.<number>]-<digest>."""
    stamp, _, number = folder.name.rpartition("-")[0].partition(".")
    return stamp, int(number) if number.isdecimal() else 1


def find_run(root: Path, digest: str) -> Run | None:
    """The newest run of this plan. Where a run.json is gone, as the remedy of a damaged one says, its records count."""
    folders = [path for path in runs_folder(root).glob(f"*-{digest[:12]}") if any(path.glob("*/**/*.json"))]
    folders += [run.folder for run in all_runs(root) if run.folder.name.endswith(f"-{digest[:12]}")]
    return Run(max(folders, key=_order)) if folders else None


def new_run(root: Path, digest: str) -> Run:
    """A folder for a run of this plan, whose lock is held. It is the newest, also after a clock that jumped back."""
    _remove_unborn(root, digest)
    stamp, number = now().strftime("%Y%m%d-%H%M%S"), 1
    newest = find_run(root, digest)
    if newest is not None and _order(newest.folder) >= (stamp, number):
        stamp, number = _order(newest.folder)
        number += 1
    base = runs_folder(root) / f"{stamp}{f'.{number}' if number > 1 else ''}-{digest[:12]}"
    while base.exists():
        number += 1
        base = runs_folder(root) / f"{stamp}.{number}-{digest[:12]}"
    base.mkdir(parents=True)
    return Run(base)


def _remove_unborn(root: Path, digest: str) -> None:
    """Remove folders of this plan that a run was killed in before it had written its run.json, if nothing is there."""
    for folder in runs_folder(root).glob(f"*-{digest[:12]}"):
        if not (folder / "run.json").exists():
            for part in folder.glob(".*.part"):
                part.unlink()
            with contextlib.suppress(OSError):
                folder.rmdir()


def point_latest(root: Path, run: Run) -> None:
    """Make reports/latest point to the run, in one step."""
    link = root / "reports" / "latest"
    part = link.with_name(".latest.part")
    lock = lock_file(cache_folder(), f"latest-{protocol.digest(str(root))[:16]}")
    with held(lock, "another process is moving reports/latest; waiting for it"):
        part.unlink(missing_ok=True)  # of one that was killed
        part.symlink_to(os.path.relpath(run.folder, link.parent))
        part.replace(link)


STILL_WAITING_S = 60.0
_told: set[str] = set()  # what this process has said it waits for
OWN_CACHE = "set KERNEL_MATRIX_CACHE to a folder of yours"


@contextmanager
def held(path: Path, waiting: str, *, mode: int = 0o644, remedy: str = OWN_CACHE) -> Iterator[None]:
    """Hold a lock file. Where another process does: print `waiting`, wait, and say from time to time for how long.

    Who holds it again and again takes turns with who waits: the next one holds `.next` beside it until its turn comes.
    """
    lock, turn = (filelock.FileLock(each, mode=mode) for each in (path, path.with_name(f"{path.name}.next")))
    try:
        try:
            for each in (turn, lock):
                _acquire(each, waiting)
        finally:
            turn.release()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InfrastructureError(f"{path}: {error.strerror}", remedy) from None
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: filelock.BaseFileLock, waiting: str) -> None:
    """Acquire a lock. Where another process holds it, print so, and from time to time for how long."""
    started = time.monotonic()
    with contextlib.suppress(filelock.Timeout):
        lock.acquire(timeout=0)
        return
    if waiting not in _told:
        _told.add(waiting)
        print(printable(waiting), flush=True)
    while True:
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=STILL_WAITING_S)
            return
        print(f"still waiting, for {(time.monotonic() - started) / 60:.0f} min", flush=True)


def measure_lock(cache: Path) -> Path:
    """What a run holds while it measures on this host's processors. Hosts may share a cache."""
    return lock_file(cache, f"measure-{socket.gethostname()}")


def stored(root: Path, path_in_run: Path, model: type[AnyRecord], key: str) -> Iterator[tuple[Run, AnyRecord]]:
    """Records of other runs at the same place whose `key` says that the same would be measured again, newest first.

    A damaged record of another run is passed over: it is refused where that run is read.
    """
    for run in all_runs(root):
        path = run.folder / path_in_run
        if path.is_file():
            try:
                record = load_record(path, model)
            except RecordError:
                continue
            if getattr(record, "key", None) == key:
                yield run, record
