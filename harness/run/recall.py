"""Launches of earlier runs, taken into a new one whose launches have the same keys.

A block is taken whole, from one run, or not at all: its rows are compared with each other, and were measured together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.config.keys import ENDED_AT
from harness.config.plan import PlannedLaunch
from harness.errors import RecordError
from harness.progress import Display
from harness.run.context import Context
from harness.run.folders import all_runs
from harness.run.launch import Launch
from harness.schema.records import LaunchRecord
from harness.schema.storage import Run, load_record, save_record
from harness.worker import protocol

NEVER = {*ENDED_AT["launch"], protocol.BROKEN, protocol.NOT_RUN}


def recall_blocks(
    context: Context, display: Display, due: Sequence[PlannedLaunch], launches: Mapping[PlannedLaunch, Launch]
) -> None:
    """Copy every block that another run holds. `launches` are those that would be made; of other blocks none."""
    others = [run for run in all_runs(context.root) if run.folder != context.run.folder]
    for index, device in dict.fromkeys((launch.index, launch.device) for launch in due):
        block = [launch for launch in due if (launch.index, launch.device) == (index, device)]
        if not all(launch in launches for launch in block):
            continue
        wanted = {launch: launches[launch].key for launch in block}
        found = next((records for other in others if (records := block_of(other, wanted)) is not None), None)
        for launch, record in (found or {}).items():
            save_record(_path(context.run, launch), record)
            display.step(
                f"launch {index + 1}/{context.plan.launches_each} {launch.environment} {launch.kernel} ({device}): "
                "unchanged"
            )


def block_of(run: Run, wanted: Mapping[PlannedLaunch, str]) -> dict[PlannedLaunch, LaunchRecord] | None:
    """A run's records of a block, if it has all of them under these keys, and none that must not be taken again."""
    found = {}
    for launch, key in wanted.items():
        try:
            record = load_record(_path(run, launch), LaunchRecord)
        except RecordError:  # it is not there, or damaged
            return None
        if record.key != key or record.status in NEVER:
            return None
        found[launch] = record
    return found


def _path(run: Run, launch: PlannedLaunch) -> Path:
    return run.launch_path(launch.environment, launch.kernel, launch.device, launch.index)
