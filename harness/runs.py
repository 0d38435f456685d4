"""Run folders: one a plan, found again by the plan's digest, held by one process at a time."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from harness.errors import InfrastructureError, RecordError
from harness.storage import AnyRecord, Run, load_record


def now_utc() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def runs_folder(root: Path) -> Path:
    return root / "reports" / "runs"


def all_runs(root: Path) -> list[Run]:
    """Every run with a run.json, newest first."""
    folders = [path for path in runs_folder(root).glob("*") if (path / "run.json").is_file()]
    return [Run(path) for path in sorted(folders, key=lambda path: path.name, reverse=True)]


def find_run(root: Path, digest: str) -> Run | None:
    """The newest run of this plan."""
    return next((run for run in all_runs(root) if run.folder.name.endswith(f"-{digest[:12]}")), None)


def new_run(root: Path, digest: str) -> Run:
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    base, number = runs_folder(root) / f"{stamp}-{digest[:12]}", 1
    while base.exists():  # two of one plan in one second
        number += 1
        base = runs_folder(root) / f"{stamp}.{number}-{digest[:12]}"
    base.mkdir(parents=True)
    return Run(base)


def point_latest(root: Path, run: Run) -> None:
    """Make reports/latest point to the run, in one step."""
    link = root / "reports" / "latest"
    part = link.with_name(f".latest.{os.getpid()}")
    part.unlink(missing_ok=True)
    part.symlink_to(os.path.relpath(run.folder, link.parent))
    part.replace(link)


@contextmanager
def held(path: Path, waiting: str) -> Iterator[None]:
    """Hold a lock file; where another process does, print `waiting`, and wait."""
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        print(waiting, flush=True)
        lock.acquire()
    except OSError as error:
        raise InfrastructureError(f"{path}: {error.strerror}", "set KERNEL_MATRIX_CACHE to a folder of yours") from None
    try:
        yield
    finally:
        lock.release()


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
