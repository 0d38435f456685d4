"""What is taken again: launches of earlier runs, and the records of a run that is found again.

A block is taken whole, from one run, or not at all: its rows are compared with each other, and were measured together.
A run may be found again under other thresholds and limits. Thresholds only judge: the run has the new ones from now on,
and its records are reported by them. Limits only stop: what ended at a limit that was raised is dropped, and made
again; all else does not depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.config.keys import ENDED_AT
from harness.config.plan import Plan, PlannedLaunch
from harness.errors import RecordError
from harness.progress import Display
from harness.run.context import Context
from harness.run.folders import all_runs, now_utc
from harness.run.launch import Launch, launch_path
from harness.schema.records import LaunchRecord
from harness.schema.storage import KIND_OF, Run, load_any, load_record, save_record
from harness.worker import protocol

NEVER = {*ENDED_AT["launch"], protocol.BROKEN, protocol.NOT_RUN}
FOLDERS = ("builds", "validations", "launches", "ceilings", "experiments")


def recall_blocks(
    context: Context, display: Display, due: Sequence[PlannedLaunch], launches: Mapping[PlannedLaunch, Launch]
) -> None:
    """Copy every block that another run holds. `launches` are those that would be made; of other blocks none."""
    others = [run for run in all_runs(context.root) if run.folder != context.run.folder]
    for index, device in dict.fromkeys((launch.index, launch.device) for launch in due):
        block = [launch for launch in due if (launch.index, launch.device) == (index, device)]
        if not all(launch in launches for launch in block):
            continue
        # A launch that can run nothing costs nothing to record.
        wanted = {launch: launches[launch].key for launch in block if not launches[launch].cannot_run}
        recalled = next((records for other in others if (records := block_of(other, wanted)) is not None), None)
        for launch, record in (recalled or {}).items():
            save_record(launch_path(context.run, launch), record)
            display.step(
                f"launch {index + 1}/{context.plan.launches_each} {launch.environment} {launch.kernel} ({device}): "
                "unchanged"
            )


def block_of(run: Run, wanted: Mapping[PlannedLaunch, str]) -> dict[PlannedLaunch, LaunchRecord] | None:
    """A run's records of a block, if it has all of them under these keys, and none that must not be taken again."""
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


def renew(run: Run, plan: Plan, text: str) -> bool:
    """Bring a run up to the plan's thresholds. Whether a limit was raised since it was made, and something may follow.

    The limits themselves are recorded once the run is finished under them (`settle`): an interrupted one comes back
    here.
    """
    known = run.load()
    asked = replace(known, thresholds=plan.thresholds, matrix_text=text)
    if asked != known:
        save_record(run.run_path(), asked)
    raised = {name for name, most in plan.limits.model_dump().items() if is_raised(known.limits.get(name), most)}
    for path in list(outgrown(run, raised)):
        path.unlink()
    return bool(raised)


def settle(run: Run, plan: Plan) -> None:
    """Record that the run is finished, and under which limits."""
    known = run.load()
    now = replace(known, limits=plan.limits.model_dump(), finished_utc=known.finished_utc or now_utc())
    if now != known:
        save_record(run.run_path(), now)


def is_raised(before: float | None, now: float | None) -> bool:
    """None is a share of the machine's memory: how it compares is not known, so what ended there is tried again."""
    return before != now and (before is None or now is None or now > before)


def outgrown(run: Run, raised: Collection[str]) -> Iterator[Path]:
    """The records, or those with a result, that ended at one of these limits."""
    paths = [path for folder in FOLDERS for path in (run.folder / folder).rglob("*.json")] if raised else []
    for path in paths:
        record = load_any(path)
        statuses = {getattr(each, "status", "") for each in (record, *getattr(record, "results", ()))}
        limits = {limit for status in statuses for limit in ENDED_AT.get(KIND_OF[type(record)], {}).get(status, ())}
        if limits & set(raised):
            yield path
