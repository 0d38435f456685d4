"""What is known is not done again: a job's record is taken from this run, or from another, where its key is the same.

A round of launches is taken whole, from one run, or not at all: its rows are compared with each other, and were
measured together. A damaged record is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.config.plan import Plan, PlannedLaunch
from harness.errors import RecordError
from harness.progress import Display
from harness.run.context import Context
from harness.run.folders import all_runs, now_utc, stored
from harness.run.launch import Replicate, launch_path
from harness.schema.records import LaunchRecord
from harness.schema.storage import AnyRecord, Run, load_any, load_record, save_record
from harness.worker import protocol

# What ended so may end otherwise: at another limit, or once the machine is mended.
NEVER = {protocol.TIMED_OUT, protocol.KILLED, protocol.BROKEN, protocol.NOT_RUN}
RECORDS = ("environments", "builds", "validations", "launches", "crossings", "ceilings", "experiments")


def is_recorded(
    context: Context,
    path: Path,
    model: type[AnyRecord],
    key: str,
    take: Callable[[Run, AnyRecord], bool] = lambda _, record: ran(record),
) -> bool:
    """Return whether this run holds the record of a job, or another one whose record `take` accepts. That is copied."""
    if path.exists() and getattr(load_record(path, model), "key", None) == key:
        return True
    for run, record in stored(context.root, path.relative_to(context.run.folder), model, key):
        if take(run, record):
            context.save(path, record)
            return True
    return False


def ran(record: object) -> bool:
    """Return whether what was done ran to its end."""
    return getattr(record, "status", "") in protocol.RAN


def mend(run: Run) -> list[Path]:
    """Remove records that are damaged, or stand under another one's name. Return their files."""
    removed = []
    for path in (run.run_path(), *(path for name in RECORDS for path in (run.folder / name).rglob("*.json"))):
        try:
            if path.exists():
                run.check_place(path, load_any(path))
        except RecordError:
            path.unlink()
            removed.append(path)
    return removed


def recall_rounds(
    context: Context, display: Display, due: Sequence[PlannedLaunch], launches: Mapping[PlannedLaunch, Replicate]
) -> None:
    """Copy every round that another run holds. `launches` are those that would be made; of other rounds none.

    A round of which this run has a launch is taken only from the run that this launch came from.
    """
    others = [run for run in all_runs(context.root) if run.folder != context.run.folder]
    for index, device in dict.fromkeys((launch.index, launch.device) for launch in due):
        every = [launch for launch in due if (launch.index, launch.device) == (index, device)]
        if not all(launch in launches for launch in every):
            continue
        # A launch that can run nothing costs nothing to record.
        wanted = {launch: launches[launch].key for launch in every if not launches[launch].cannot_run}
        here = {launch: path for launch in wanted if (path := launch_path(context.run, launch)).exists()}
        if len(here) == len(wanted):
            continue
        for records in (round_of(other, wanted) for other in others):
            if records and all(load_record(path, LaunchRecord) == records[launch] for launch, path in here.items()):
                for launch, record in ((each, records[each]) for each in wanted if each not in here):
                    save_record(launch_path(context.run, launch), record)
                    what = f"{launch.environment} {launch.kernel} ({launch.device}): unchanged"
                    display.step(f"launch {index + 1}/{context.plan.launches_each} {what}")
                break


def round_of(run: Run, wanted: Mapping[PlannedLaunch, str]) -> dict[PlannedLaunch, LaunchRecord] | None:
    """Return a run's records of a round, if it has all of them under these keys, and none that must not be taken."""
    records = {}
    for launch, key in wanted.items():
        try:
            record = load_record(launch_path(run, launch), LaunchRecord)
        except RecordError:  # it is not there, or damaged
            return None
        if record.key != key or record.status in NEVER:
            return None
        records[launch] = record
    return records


def renew(run: Run, plan: Plan, text: str) -> None:
    """Bring a run that is found again up to the plan's thresholds, which only judge."""
    known = run.load()
    now = replace(known, thresholds=plan.thresholds, matrix_text=text)
    if now != known:
        save_record(run.run_path(), now)


def settle(run: Run) -> None:
    """Record that the run is finished."""
    known = run.load()
    if not known.finished_utc:
        save_record(run.run_path(), replace(known, finished_utc=now_utc()))
