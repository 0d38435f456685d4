"""A run's records, loaded once, checked against each other and indexed; the only part of reports that reads files.

Every record's digest is checked (`RecordError` with its path), and so is that a record lies where its contents say:
a file copied over another's place would else be reported under the wrong name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import InputError, RecordError
from harness.schema.compiled_records import CompiledRecord
from harness.schema.environment_records import BuildRecord, CeilingRecord, EnvironmentRecord
from harness.schema.experiment_records import (
    CheckersRecord,
    ConditionsRecord,
    FactorRecord,
    ProfileRecord,
)
from harness.schema.records import (
    ENDED_BADLY,
    CrossingRecord,
    LaunchRecord,
    Outcome,
    TargetTiming,
    ValidationRecord,
)
from harness.schema.run_records import Cell, KernelInfo, RunRecord, WorkloadInfo
from harness.schema.storage import KIND_OF, Run, load_any
from harness.stats.decide import look_counts
from harness.typed import typed
from harness.worker import blame, protocol
from harness.worker.protocol import Fault
from reports.load.groups import grouped
from reports.load.launches import Launch, escapes, group_launches

Keyed = tuple[str, ...]  # environment, kernel, workload and device; profiles: and target


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """`launches` are by environment, kernel, device, workload and target; `ceilings` by the GPU's UUID."""

    run: RunRecord
    environments: dict[str, EnvironmentRecord]
    builds: dict[tuple[str, str, str], BuildRecord]
    validations: dict[str, ValidationRecord]
    crossings: dict[tuple[str, str, str], CrossingRecord]
    launch_records: dict[tuple[str, str, str], list[LaunchRecord]]
    launches: dict[tuple[str, str, str, str, str], list[Launch]]
    paths: Run
    ceilings: dict[str, CeilingRecord] = field(default_factory=dict)
    # Experiments, each with the record's path.
    conditions: dict[Keyed, list[tuple[ConditionsRecord, str]]] = field(default_factory=dict)
    checkers: dict[Keyed, list[tuple[CheckersRecord, str]]] = field(default_factory=dict)
    profiles: dict[Keyed, tuple[ProfileRecord, str]] = field(default_factory=dict)
    factors: dict[Keyed, list[tuple[FactorRecord, str]]] = field(default_factory=dict)
    compiled: dict[Keyed, tuple[CompiledRecord, str]] = field(default_factory=dict)
    # Every row needs its pointers, and joining paths is slow.
    known: dict[tuple[str, ...], str] = field(default_factory=dict, compare=False, repr=False)
    # What the machine was like, by environment and device: every time that moved asks.
    loads: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict, compare=False, repr=False)

    def timed(self, cell: Cell, target: str) -> list[Launch]:
        """One target's launches, in block order."""
        return self.launches.get((cell.environment, cell.kernel, cell.device, cell.workload, target), [])

    def launches_of(self, cell: Cell) -> list[LaunchRecord]:
        """Those that this cell was timed in, in block order."""
        every = self.launch_records.get((cell.environment, cell.kernel, cell.device), [])
        return [launch for launch in every if not launch.workloads or cell.workload in launch.workloads]

    def escaping(self, cell: Cell) -> list[TargetTiming]:
        """The kernel's timings on that workload, of all launches, whose calls put their work on another stream."""
        return [
            timing
            for _, timing in self.timings(cell.environment, cell.kernel, cell.device, cell.workload, protocol.KERNEL)
            if escapes(timing)
        ]

    def timings(self, *key: str) -> list[tuple[LaunchRecord, TargetTiming]]:
        """By environment, kernel, device, workload and target, in block order."""
        return self._timings.get(key, [])

    @cached_property
    def _timings(self) -> dict[tuple[str, ...], list[tuple[LaunchRecord, TargetTiming]]]:
        return grouped(
            ((*key, timing.workload, timing.target), (launch, timing))
            for key, launches in self.launch_records.items()
            for launch in launches
            for timing in launch.timings
        )

    def references(self, kernel: str, device: str) -> list[str]:
        info = self.kernel(kernel)
        return info.references_on(device) if info else []

    def kernel(self, name: str) -> KernelInfo | None:
        return self._kernels.get(name)

    def workload(self, name: str) -> WorkloadInfo | None:
        return self._workloads.get(name)

    # A run may have thousands of each, and every row asks.
    @cached_property
    def _kernels(self) -> dict[str, KernelInfo]:
        return {kernel.name: kernel for kernel in reversed(self.run.kernels)}

    @cached_property
    def _workloads(self) -> dict[str, WorkloadInfo]:
        return {workload.id: workload for workload in reversed(self.run.workloads)}

    @cached_property
    def _cells(self) -> dict[tuple[str, str], list[Cell]]:
        return grouped(((cell.kernel, cell.device), cell) for cell in self.run.cells)

    def validations_of(self, environment: str, kernel: str, device: str) -> list[ValidationRecord]:
        return self._validations.get((environment, kernel, device), [])

    @cached_property
    def _validations(self) -> dict[tuple[str, str, str], list[ValidationRecord]]:
        records = self.validations.values()
        return grouped(((record.environment, record.kernel, record.device), record) for record in records)

    @cached_property
    def names(self) -> dict[str, str]:
        """Each environment as sentences name it: by its PyTorch, such as PyTorch 2.5.0, where that names one alone;
        else, and of a replica of another, by its id."""
        stacks = {id: self.environments.get(id) for id in self.run.environments}
        short = {id: torch_of(stack).partition("+")[0] for id, stack in stacks.items() if stack is not None}
        earlier: list[EnvironmentRecord] = []
        for id, stack in stacks.items():
            if stack is not None and any(same_stack(stack, other) for other in earlier):
                del short[id]
            earlier += [stack] if stack is not None else []
        several = Counter(short.values())
        named = {id for id, torch in short.items() if torch[:1].isdigit() and several[torch] == 1}
        return {id: f"PyTorch {short[id]}" if id in named else id for id in stacks}

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
        """How often the run could stop, by the numbers of launches at which it looks."""
        return len(look_counts(self.run.launches, self.run.most_launches or self.run.launches))

    def ever_ran(self, kernel: str, device: str) -> bool:
        """Whether a kernel ran to its end on any workload in any environment, or may have: of one that has no record
        it is not known."""
        cells = self._cells.get((kernel, device), [])
        return any(self.outcome(cell).status not in (protocol.BUILD_FAILED, *ENDED_BADLY) for cell in cells)

    def outcome(self, cell: Cell, *, built: bool = True) -> ValidationRecord | Outcome:
        """The record of a cell that ran, else what kept it from running. `built`: as for `blocked`."""
        record = self.validations.get(cell.id)
        if record is not None and record.status in protocol.RAN:
            return record
        missing = Outcome(status="not_run", message="the run has no validation record of it")
        return unblamed(self.blocked(cell, built=built) or record or missing)

    def blocked(self, cell: Cell, *, built: bool = True) -> Outcome | None:
        """What keeps a cell from being measured at all. `built`: whether it takes the kernel's build; a reference does
        not."""
        stack = self.environments.get(cell.environment)
        build = self.builds.get((cell.environment, cell.kernel, cell.device)) if built else None
        if stack is not None and stack.status != "ok":
            why = blame.BECAUSE + (stack.message or "the environment failed")
            return Outcome(status=stack.status, message=why, log_excerpt=stack.log_excerpt, fault=Fault.ENVIRONMENT)
        if build is not None and build.status != "ok":
            return unblamed(replace(build.ended(), message=build.message or "the build failed"))
        if build is not None and not build.runnable:
            return Outcome(status="not_run", message=build.message or "compiled only: no device to run it on")
        return None


def unblamed(outcome: Outcome) -> Outcome:
    """Return an outcome that says nothing of the code under test where that did not fail: it was skipped."""
    if outcome.fault is Fault.SUBJECT or outcome.status in (protocol.NOT_RUN, protocol.BROKEN):
        return outcome
    return replace(outcome, status=protocol.NOT_RUN)


def torch_of(stack: EnvironmentRecord) -> str:
    """As observed, else as asked for."""
    return stack.observed.torch if stack.observed else stack.torch


def same_stack(one: EnvironmentRecord | None, two: EnvironmentRecord | None) -> bool:
    """Whether two environments are replicas of one: the same versions from the same pins."""
    names = ("torch", "cuda", "python", "index", "pins_sha256", "variables")
    return one is not None and two is not None and all(getattr(one, name) == getattr(two, name) for name in names)


def load_evidence(folder: Path) -> Evidence:
    """InputError where the folder is no run, RecordError where any record in it cannot be trusted."""
    run = Run(folder)
    if not run.run_path().is_file():
        problem = "is not a run: it has no run.json" if folder.is_dir() else "no such folder"
        raise InputError(
            f"{folder}: {'a file; the folder of a run belongs here' if folder.is_file() else problem}",
            f"give a folder under reports/runs, or make one with: {typed('matrix')}",
        )
    launches = run.launches()
    _refuse_doubled(run, launches)
    in_order = sorted(launches, key=lambda record: record.index)
    launch_records: dict[tuple[str, str, str], list[LaunchRecord]] = grouped(
        ((launch.environment, launch.kernel, launch.device), launch) for launch in in_order
    )
    return Evidence(
        run=run.load(),
        environments={record.id: record for record in run.environments()},
        builds={(record.environment, record.kernel, record.device): record for record in run.builds()},
        validations={cell_of(record).id: record for record in run.validations()},
        crossings={(record.kernel, record.device, record.workload): record for record in run.crossings()},
        launch_records=launch_records,
        launches=group_launches(launch for group in launch_records.values() for launch in group),
        paths=run,
        ceilings={record.device_uuid: record for record in run.ceilings()},
        **_experiments(run),
    )


def _refuse_doubled(run: Run, launches: Sequence[LaunchRecord]) -> None:
    """RecordError where two parts of a kernel's launches measured the same: no launch counts twice."""
    seen: set[tuple[str, ...]] = set()
    for launch in launches:
        key = (launch.environment, launch.kernel, launch.device, str(launch.index))
        own = {(*key, *pair) for pair in {(each.workload, each.target) for each in launch.timings}}
        if own & seen:
            raise RecordError(str(run.launch_path(*key[:3], launch.index).parent), f"has block {launch.index} twice")
        seen |= own


AnyExperiment = ConditionsRecord | CheckersRecord | CompiledRecord | FactorRecord | ProfileRecord
# By type of record, the field of `Evidence`.
EXPERIMENTS: dict[type[Outcome], str] = {
    ConditionsRecord: "conditions",
    CheckersRecord: "checkers",
    ProfileRecord: "profiles",
    FactorRecord: "factors",
    CompiledRecord: "compiled",
}


def _experiments(run: Run) -> dict[str, Any]:
    found: dict[str, dict[Keyed, Any]] = {name: {} for name in EXPERIMENTS.values()}
    for path in run.experiment_paths():
        record = load_any(path)
        if not isinstance(record, AnyExperiment):
            raise RecordError(str(path), f"is a {KIND_OF[type(record)]} record, and stands among experiments")
        name = EXPERIMENTS[type(record)]
        key: Keyed = (record.environment, record.kernel, record.workload, record.device)
        if isinstance(record, ProfileRecord):
            key = (*key, record.target)
        place = run.experiment_path(record.environment, record.kernel, record.device, record.workload, path.stem)
        if path != place:
            raise RecordError(str(path), "stands under another record's name")
        entry = record, path.relative_to(run.folder).as_posix()
        if isinstance(record, ConditionsRecord | CheckersRecord | FactorRecord):  # a place holds several
            found[name].setdefault(key, []).append(entry)
        else:
            found[name][key] = entry
    return found


def cell_of(record: ValidationRecord) -> Cell:
    return Cell(environment=record.environment, kernel=record.kernel, workload=record.workload, device=record.device)
