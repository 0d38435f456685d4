"""What finished runs measured, as one SQLite file beside them. It is made of records alone, and can be removed.

A point is one target on one workload in one environment of one run: the median of its launches' medians, with the
interval of that median. Points that may be compared are a series: of one subject, workload, device, environment and
machine. Of a GPU its model is the machine, of a CPU the very machine.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness.errors import RecordError
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.run_records import RunRecord
from harness.schema.storage import Run
from harness.worker import protocol
from reports.compare.latency import median_interval
from reports.compare.rows import KERNEL, REFERENCE
from reports.load.launches import Key, group_launches
from reports.model import COLD, HOT

FILE = "history.sqlite"
VERSION = 2  # of the tables; a file of another one is made again


class Point(NamedTuple):
    """`status` is that of the kernel's validation, '' of a reference. Times are None where no launch has one, and of
    outputs that were wrong when they were timed. `settings` is a digest of what else makes points incomparable: the
    workload, threads, how long was measured; `launched` of the launches, which a later run may have taken over.
    """

    run: str
    created: str
    commit_id: str
    machine: str
    kind: str
    subject: str
    workload: str
    device: str
    environment: str
    torch: str
    wheels: str
    mode: str
    settings: str
    launched: str
    status: str
    median_us: float | None
    low_us: float | None
    high_us: float | None
    launches: int


TABLES = f"""
DROP TABLE IF EXISTS runs;
DROP TABLE IF EXISTS points;
CREATE TABLE runs (id TEXT PRIMARY KEY, files TEXT NOT NULL);
CREATE TABLE points ({", ".join(Point._fields)});
CREATE INDEX points_by_run ON points (run);
PRAGMA user_version = {VERSION};
"""


def update(folder: Path) -> tuple[list[Point], list[str]]:
    """(every point of the finished runs below a reports folder, the oldest first; why runs were left out)."""
    path = folder / FILE
    try:
        return _update(path, folder)
    except sqlite3.OperationalError:  # it cannot be written, or another process has it for long
        return _update(":memory:", folder)
    except sqlite3.DatabaseError:  # damaged
        path.unlink(missing_ok=True)
        return _update(path, folder)


def _update(path: Path | str, folder: Path) -> tuple[list[Point], list[str]]:
    left_out = []
    with closing(sqlite3.connect(path)) as index, index:
        index.execute("BEGIN IMMEDIATE")
        if index.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            for statement in TABLES.split(";"):
                index.execute(statement)
        known = dict(index.execute("SELECT id, files FROM runs"))
        there = {run.parent.name: run.parent for run in sorted((folder / "runs").glob("*/run.json"))}
        for gone in known.keys() - there.keys():
            _forget(index, gone)
        for id, place in there.items():
            try:
                files = _digest(place)
                if known.get(id) == files:
                    continue
                _forget(index, id)
                points = list(points_of(Run(place)))
            except (RecordError, OSError) as error:  # damaged, or removed meanwhile
                left_out.append(str(error))
                continue
            index.execute("INSERT INTO runs VALUES (?, ?)", (id, files))
            index.executemany(f"INSERT INTO points VALUES ({', '.join('?' * len(Point._fields))})", points)
        rows = index.execute(f"SELECT {', '.join(Point._fields)} FROM points ORDER BY created, run, rowid")
        return [Point(*row) for row in rows], left_out


def _forget(index: sqlite3.Connection, run: str) -> None:
    index.execute("DELETE FROM runs WHERE id = ?", (run,))
    index.execute("DELETE FROM points WHERE run = ?", (run,))


def _digest(place: Path) -> str:
    """Of what the index holds of a run: it is read again where a record came or changed."""
    found = hashlib.sha256()
    records = [path for name in ("launches", "validations") for path in sorted((place / name).rglob("*.json"))]
    for path in [place / "run.json", *records]:
        status = path.stat()
        found.update(f"{path.relative_to(place)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()


def points_of(run: Run) -> Iterator[Point]:
    """None of a run that is not finished, or of one environment alone. RecordError where a record is damaged."""
    record = run.load()
    if not record.finished_utc or record.mode == "eval":
        return
    workloads = {workload.id: workload.model_copy(update={"trials": {}}) for workload in record.workloads}
    environments = {environment.id: environment for environment in run.environments()}
    validated = {(v.environment, v.kernel, v.device, v.workload): v.status for v in run.validations()}
    launched = group_launches(run.launches())
    statuses: dict[Key, str] = {(*cell, protocol.KERNEL): status for cell, status in validated.items()}
    seen = set()
    for key in dict.fromkeys([*launched, *statuses]):
        environment, kernel, device, workload, target = key
        is_kernel = target == protocol.KERNEL
        subject = kernel if is_kernel else target
        if environment not in environments or (environment, is_kernel, subject, device, workload) in seen:
            continue  # a reference that several kernels are compared with counts once
        seen.add((environment, is_kernel, subject, device, workload))
        for mode in (COLD, HOT) if device == "cuda" else (COLD,):
            own = [launch for launch in launched.get(key, []) if launch.correct is not False]
            times = [time for launch in own if (time := launch.time_us(mode)) is not None]
            low, high = median_interval(times, record.thresholds.confidence)
            yield Point(
                run=run.folder.name,
                created=record.created_utc,
                commit_id=record.commit,
                machine=_machine(record, device),
                kind=KERNEL if is_kernel else REFERENCE,
                subject=subject,
                workload=workload,
                device=device,
                environment=environment,
                torch=_torch(environments[environment]),
                wheels=environments[environment].index,
                mode=mode,
                status=statuses.get(key, ""),
                settings=protocol.digest(
                    [
                        workloads[workload].model_dump() if workload in workloads else workload,
                        record.quick,
                        record.executor,
                        _threads(environments[environment]),
                    ]
                )[:16],
                launched=protocol.digest(times)[:16],
                median_us=median(times) if times else None,
                low_us=low,
                high_us=high,
                launches=len(times),
            )


def _machine(record: RunRecord, device: str) -> str:
    if device == "cuda":
        return ", ".join(sorted({gpu.name for gpu in record.gpus})) or "unknown GPU"
    return f"{record.host.get('cpu', 'unknown CPU')} ({record.host.get('machine', 'unknown')})"


def _threads(environment: EnvironmentRecord) -> int | None:
    return environment.observed.threads if environment.observed else None


def _torch(environment: EnvironmentRecord) -> str:
    return environment.observed.torch if environment.observed else environment.torch
