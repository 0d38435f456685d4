"""A run's records, loaded once, checked against each other and indexed; the only part of reports that reads files.

Every record's digest is checked (`RecordError` with its path), and so is that a record stands where its contents say:
a file copied over another's place would else be reported under the wrong name.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import InputError, RecordError
from harness.schema.experiment_records import (
    CheckersRecord,
    ConditionsRecord,
    CountersRecord,
    ProfileRecord,
    SwapRecord,
)
from harness.schema.records import (
    BuildRecord,
    CeilingRecord,
    CrossingRecord,
    EnvironmentRecord,
    LaunchRecord,
    Outcome,
    Timing,
    ValidationRecord,
)
from harness.schema.run_records import Cell, KernelInfo, RunRecord, WorkloadInfo
from harness.schema.storage import AnyRecord, Run, kind_of, load_record
from harness.stats.decide import look_counts
from harness.stats.medians import COLD, HOT, time_us

NAN = float("nan")
LAUNCH_COLUMNS = [
    "environment",
    "kernel",
    "device",
    "block",
    "workload",
    "target",
    "status",
    "message",
    "log_excerpt",
    "median_us",
    "samples",
    "correct",
    "hot_us",
    "hot_samples",
    "hot_message",
    "enqueue_us",
    "sm_mhz",
    "throttled",
    "capped",
]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """`launches` has one row per launch, workload and target; medians are NaN where nothing was measured.
    `ceilings` are by the GPU's UUID."""

    run: RunRecord
    environments: dict[str, EnvironmentRecord]
    builds: dict[tuple[str, str, str], BuildRecord]
    validations: dict[str, ValidationRecord]
    crossings: dict[tuple[str, str, str], CrossingRecord]
    launch_records: dict[tuple[str, str, str], list[LaunchRecord]]
    launches: pd.DataFrame
    paths: Run
    ceilings: dict[str, CeilingRecord] = field(default_factory=dict)
    # Experiments, each with the record's path: by environment, kernel, workload and device (profiles: and target),
    # swapped object code by kernel, workload and device.
    conditions: dict[tuple[str, ...], list[tuple[ConditionsRecord, str]]] = field(default_factory=dict)
    checkers: dict[tuple[str, ...], list[tuple[CheckersRecord, str]]] = field(default_factory=dict)
    counters: dict[tuple[str, ...], tuple[CountersRecord, str]] = field(default_factory=dict)
    profiles: dict[tuple[str, ...], tuple[ProfileRecord, str]] = field(default_factory=dict)
    swaps: dict[tuple[str, ...], tuple[SwapRecord, str]] = field(default_factory=dict)
    # Pointers are asked for by every row, and joining paths is slow.
    known: dict[tuple[str, ...], str] = field(default_factory=dict, compare=False, repr=False)

    def validation(self, environment: str, kernel: str, workload: str, device: str) -> ValidationRecord | None:
        return self.validations.get(f"{environment}/{kernel}/{workload}/{device}")

    def kernel(self, name: str) -> KernelInfo | None:
        return next((kernel for kernel in self.run.kernels if kernel.name == name), None)

    def workload(self, name: str) -> WorkloadInfo | None:
        return next((workload for workload in self.run.workloads if workload.id == name), None)

    def _pointer(self, key: tuple[str, ...], path: Callable[[], Path]) -> str:
        if key not in self.known:
            self.known[key] = path().relative_to(self.paths.folder).as_posix()
        return self.known[key]

    def validation_pointer(self, record: ValidationRecord) -> str:
        cell = cell_of(record)
        return self._pointer(("validation", cell.id), lambda: self.paths.validation_path(cell))

    def build_pointer(self, environment: str, kernel: str, device: str) -> str:
        key = ("build", environment, kernel, device)
        return self._pointer(key, lambda: self.paths.build_path(environment, kernel, device))

    def launches_pointer(self, environment: str, kernel: str, device: str) -> str:
        """The folder of all launches."""
        key = ("launches", environment, kernel, device)
        return self._pointer(key, lambda: self.paths.launch_path(environment, kernel, device, 0).parent)

    def crossing_pointer(self, kernel: str, device: str, workload: str) -> str:
        key = ("crossing", kernel, device, workload)
        return self._pointer(key, lambda: self.paths.crossing_path(kernel, device, workload))

    def min_effect(self, device: str) -> float:
        return self.run.thresholds.min_effect(device)

    @property
    def confidence(self) -> float:
        return self.run.thresholds.confidence

    @property
    def false_discovery_rate(self) -> float:
        return self.run.thresholds.false_discovery_rate

    @property
    def looks(self) -> int:
        """At how many numbers of launches it could be asked whether they are enough."""
        return len(look_counts(self.run.launches, self.run.most_launches or self.run.launches))

    def blocked(self, environment: str, kernel: str | None, device: str) -> Outcome | None:
        """What keeps a kernel (None: a reference) from being measured at all, before any cell of it."""
        stack = self.environments.get(environment)
        if stack is not None and stack.status != "ok":
            return Outcome(
                status=stack.status, message=stack.message or "the environment failed", log_excerpt=stack.log_excerpt
            )
        build = self.builds.get((environment, kernel, device)) if kernel is not None else None
        if build is not None and build.status != "ok":
            return Outcome(
                status=build.status, message=build.message or "the build failed", log_excerpt=build.log_excerpt
            )
        if build is not None and not build.runnable:
            return Outcome(status="not_run", message=build.message or "compiled only: no device to run it on")
        return None


def launch_table(records: list[LaunchRecord]) -> pd.DataFrame:
    """One row per timed target. A time that is not positive is no time, and becomes a crash of the clock."""
    rows = []
    for record in records:
        for timing in record.timings:
            positive = bool(timing.samples_us) and min(timing.samples_us) > 0
            status, message = timing.status, timing.message
            if status == "ok" and not positive:
                status, message = "broken", "the record holds no positive times"
            rows.append(
                (
                    record.environment,
                    record.kernel,
                    record.device,
                    record.index,
                    timing.workload,
                    timing.target,
                    status,
                    message,
                    timing.log_excerpt,
                    _known(time_us(timing, COLD)),
                    len(timing.samples_us),
                    timing.correct,
                    _known(time_us(timing, HOT)),
                    len(timing.hot_us),
                    *_on_a_gpu(timing, status),
                )
            )
    table: pd.DataFrame = pd.DataFrame(rows, columns=LAUNCH_COLUMNS)
    return table


def _known(value: float | None) -> float:
    return NAN if value is None else value


def _on_a_gpu(timing: Timing, status: str) -> tuple[str, float, float, int, int]:
    """Why there are no replays, the host's time to enqueue, SM clock, samples left out and under the power cap."""
    message = timing.hot_message
    if timing.hot_us and min(timing.hot_us) <= 0:
        message = "the record holds replays of no positive time"
    return (
        message,
        statistics.median(timing.enqueue_us) if status == "ok" and timing.enqueue_us else NAN,
        _known(timing.sm_mhz),
        timing.throttled_samples,
        len(timing.capped) + len(timing.hot_capped),
    )


def load_evidence(folder: Path) -> Evidence:
    """InputError where the folder is no run, RecordError where any record in it cannot be trusted."""
    run = Run(folder)
    if not run.run_path().is_file():
        raise InputError(
            f"{folder}: is not a run: it has no run.json",
            "give a folder under reports/runs, or make one with: nox -s matrix",
        )
    environments = {record.id: record for record in _placed(run.environments(), lambda r: run.environment_path(r.id))}
    builds = _placed(run.builds(), lambda r: run.build_path(r.environment, r.kernel, r.device))
    validations = _placed(run.validations(), lambda r: run.validation_path(cell_of(r)))
    launches = _placed(run.launches(), lambda r: run.launch_path(r.environment, r.kernel, r.device, r.index))
    ceilings = _placed(run.ceilings(), lambda r: run.ceiling_path(r.device_uuid))
    crossings = _placed(run.crossings(), lambda r: run.crossing_path(r.kernel, r.device, r.workload))
    grouped: dict[tuple[str, str, str], list[LaunchRecord]] = {}
    for launch in sorted(launches, key=lambda record: record.index):
        grouped.setdefault((launch.environment, launch.kernel, launch.device), []).append(launch)
    return Evidence(
        run=run.load(),
        environments=environments,
        builds={(record.environment, record.kernel, record.device): record for record in builds},
        validations={cell_of(record).id: record for record in validations},
        crossings={(record.kernel, record.device, record.workload): record for record in crossings},
        launch_records=grouped,
        launches=launch_table(launches),
        paths=run,
        ceilings={record.device_uuid: record for record in ceilings},
        **_experiments(run),
    )


EXPERIMENTS: dict[str, type[ConditionsRecord | CheckersRecord | CountersRecord | ProfileRecord | SwapRecord]] = {
    "conditions": ConditionsRecord,
    "checkers": CheckersRecord,
    "counters": CountersRecord,
    "profile": ProfileRecord,
    "swap": SwapRecord,
}


def _experiments(run: Run) -> dict[str, Any]:
    names = ("conditions", "checkers", "counters", "profiles", "swaps")
    found: dict[str, dict[tuple[str, ...], Any]] = {name: {} for name in names}
    for path in sorted((run.folder / "experiments").rglob("*.json")):
        kind = kind_of(path)
        if kind not in EXPERIMENTS:
            raise RecordError(str(path), f"is a {kind} record, and stands among experiments")
        record = load_record(path, EXPERIMENTS[kind])
        told = path.relative_to(run.folder).as_posix()
        if isinstance(record, SwapRecord):
            place = run.swap_path(record.kernel, record.device, record.workload)
            found["swaps"][record.kernel, record.workload, record.device] = record, told
        else:
            place = run.experiment_path(
                record.environment, record.kernel, record.device, record.workload, path.name.removesuffix(".json")
            )
            key: tuple[str, ...] = (record.environment, record.kernel, record.workload, record.device)
            if isinstance(record, ProfileRecord):
                key = (*key, record.target)
                found["profiles"][key] = record, told
            elif isinstance(record, CountersRecord):
                found["counters"][key] = record, told
            else:
                name = "conditions" if isinstance(record, ConditionsRecord) else "checkers"
                found[name].setdefault(key, []).append((record, told))
        if path != place:
            raise RecordError(str(path), "stands under another record's name")
    return found


def _placed(records: list[AnyRecord], path_of: Callable[[AnyRecord], Path]) -> list[AnyRecord]:
    seen: set[Path] = set()
    for record in records:
        path = path_of(record)
        if path in seen or not path.is_file():
            raise RecordError(str(path), "belongs to a record that stands under another record's name")
        seen.add(path)
    return records


def cell_of(record: ValidationRecord) -> Cell:
    return Cell(environment=record.environment, kernel=record.kernel, workload=record.workload, device=record.device)
