"""Two runs as one, whose environments are the same environment of each: every page and rule then serves for both.

What is compared is one environment of run A, the baseline, with the same one of run B, on all that both measured. The
runs were not measured in turns, which the page says: what changed on the machine between them counts as a change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.schema.experiment_records import CheckersRecord, ConditionsRecord, ProfileRecord
from harness.schema.run_records import Cell, Fallback, KernelInfo, RunRecord, RunSide, WorkloadInfo
from harness.schema.storage import Run, save_record
from reports.load.evidence import Evidence, cell_of, load_evidence
from reports.sentences import sentence

A, B = "A", "B"


@dataclass(frozen=True, kw_only=True)
class TwoRuns:
    a: Evidence
    b: Evidence

    @property
    def environments(self) -> list[str]:
        """Those that both made and planned the same cells in, by id."""
        there = self.a.environments.keys() & self.b.environments.keys()
        return [id for id in self.b.run.environments if id in there and self.shared(id)]

    @property
    def workloads(self) -> set[str]:
        """Those that are the same in both but for how often they were tried, by id; of a problem, its text too."""
        one, two = (_workloads(evidence.run) for evidence in (self.a, self.b))
        return {id for id, workload in one.items() if two.get(id) == workload}

    def shared(self, environment: str) -> list[Cell]:
        """The cells of an environment that both planned, of such workloads."""
        planned, same = {cell.id for cell in self.a.run.cells}, self.workloads
        cells = [cell for cell in self.b.run.cells if cell.environment == environment and cell.workload in same]
        return [cell for cell in cells if cell.id in planned]

    def devices(self) -> set[str]:
        return {cell.device for id in self.environments for cell in self.shared(id)}


def _workloads(run: RunRecord) -> dict[str, tuple[WorkloadInfo, str]]:
    plain = (replace(workload, trials={}) for workload in run.workloads)
    return {each.id: (each, run.sources_sha256.get(each.problem or "", "")) for each in plain}


def load_two(a: Path, b: Path, *, other_machine: bool = False) -> TwoRuns:
    """InputError where they have nothing in common, or are of different machines and that was not asked for."""
    runs = TwoRuns(a=load_evidence(a), b=load_evidence(b))
    if not runs.environments:
        raise InputError(
            f"{a} and {b} have no kernel on the same workload in the same environment",
            "compare runs of one matrix.yaml; what moved between environments is on each run's own page",
        )
    machines = [machine_of(evidence.run, runs.devices()) for evidence in (runs.a, runs.b)]
    if machines[0] != machines[1] and not other_machine:
        raise InputError(
            f"they were measured on different machines: {machines[0]} in A, {machines[1]} in B",
            "add --other-machine; its page then says so",
        )
    return runs


def machine_of(run: RunRecord, devices: Collection[str]) -> str:
    """On the CPU the very machine and its processor, on a GPU its model: where they differ, times are compared only if
    that was asked for."""
    models = sorted({gpu.name for gpu in run.gpus}) if "cuda" in devices else []
    host = f"{run.host.get('cpu', 'a processor')} of machine {run.host.get('machine', 'unknown')}"
    return ", ".join([*models, *([host] if "cpu" in devices or not models else [])])


def combine(runs: TwoRuns, environment: str, out: Path) -> None:
    """Write what both have of one environment into a folder, as records of one run with the environments A and B."""
    cells, made = runs.shared(environment), Run(out)
    for name, evidence in ((A, runs.a), (B, runs.b)):
        _copy(evidence, environment, name, cells, made)
    save_record(made.run_path(), _run(runs, environment, cells))


def _run(runs: TwoRuns, environment: str, cells: list[Cell]) -> RunRecord:
    a, b = runs.a.run, runs.b.run
    sources = {source for run in (a, b) for kernel in run.kernels for source in kernel.sources}
    kernels, workloads = {cell.kernel for cell in cells}, {cell.workload for cell in cells}
    devices = {cell.device for cell in cells}
    fallbacks = {f: f for run in (a, b) for f in run.fallbacks if f.subject == environment}
    return replace(
        b,
        run_id=f"{a.run_id}-{b.run_id}",
        mode="matrix",
        quick=a.quick or b.quick,
        sandboxed=not (a.unconfined or b.unconfined),
        baseline=A,
        environments=[A, B],
        sides={
            name: RunSide(
                run_id=run.run_id,
                created_utc=run.created_utc,
                environment=environment,
                commit=run.commit,
                machine=machine_of(run, devices),
                quick=run.quick,
                executor=run.executor,
                tolerances=run.tolerances,
                sources={name: sha for name, sha in run.sources_sha256.items() if name in sources},
            )
            for name, run in ((A, a), (B, b))
        },
        gpus=list({gpu.uuid: gpu for gpu in (*a.gpus, *b.gpus)}.values()),
        kernels=[
            replace(kernel, devices=[device for device in kernel.devices if device in devices])
            for kernel in b.kernels
            if kernel.name in kernels
        ],
        workloads=[workload for workload in b.workloads if workload.id in workloads],
        cells=[replace(cell, environment=name) for name in (A, B) for cell in cells],
        fallbacks=[*fallbacks.values(), *_left_out(runs, environment, cells)],
        launches=min(a.launches, b.launches),
        most_launches=max(a.most_launches or a.launches, b.most_launches or b.launches),
    )


def _left_out(runs: TwoRuns, environment: str, cells: list[Cell]) -> Iterator[Fallback]:
    """Yield what one run has in the environment and the other has not, or has otherwise: by kernel and workload."""
    kept = {replace(cell, environment=environment) for cell in cells}
    planned = {
        name: {cell for cell in evidence.run.cells if cell.environment == environment}
        for name, evidence in ((A, runs.a), (B, runs.b))
    }
    for cell in sorted((planned[A] | planned[B]) - kept, key=lambda cell: (cell.kernel, cell.workload, cell.device)):
        names = [name for name in (A, B) if cell in planned[name]]
        got = "workloads that differ" if len(names) == 2 else f"{names[0]} alone"
        subject = f"{cell.kernel}/{cell.workload}/{cell.device}"
        yield Fallback(subject=subject, wanted="both runs", got=got, reason="it is not compared")


def _copy(evidence: Evidence, environment: str, name: str, cells: list[Cell], made: Run) -> None:
    """Write one run's records of the environment, under its new name."""
    kept = {(environment, cell.kernel, cell.device) for cell in cells}
    known, workloads = {cell.id for cell in cells}, {cell.workload for cell in cells}
    copies: list[tuple[Path, Any]] = []
    if environment in evidence.environments:
        copies.append((made.environment_path(name), replace(evidence.environments[environment], id=name)))
    for key in kept & evidence.builds.keys():
        copies.append((made.build_path(name, *key[1:]), evidence.builds[key]))
    for validation in evidence.validations.values():
        if (cell := cell_of(validation)).id in known:
            copies.append((made.validation_path(replace(cell, environment=name)), validation))
    for key in kept & evidence.launch_records.keys():
        for launch in evidence.launch_records[key]:
            timings = [timing for timing in launch.timings if timing.workload in workloads]
            part = launch.workloads[0] if launch.workloads else ""
            path = made.launch_path(name, *key[1:], launch.index, part)
            copies.append((path, replace(launch, timings=timings)))
    for experiment, source in _experiments(evidence):
        cell = Cell(**{field.name: getattr(experiment, field.name) for field in fields(Cell)})
        if cell.id in known:
            place = made.experiment_path(name, cell.kernel, cell.device, cell.workload, Path(source).stem)
            copies.append((place, experiment))
    for path, record in copies:
        save_record(path, replace(record, environment=name) if hasattr(record, "environment") else record)
    for uuid, ceiling in evidence.ceilings.items():
        save_record(made.ceiling_path(uuid), ceiling)


def _experiments(
    evidence: Evidence,
) -> Iterator[tuple[ConditionsRecord | CheckersRecord | ProfileRecord, str]]:
    """Yield those within one environment, each with its path."""
    for several in (evidence.conditions, evidence.checkers):
        for entries in several.values():
            yield from entries
    yield from evidence.profiles.values()


def statements(run: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield subjects, each with what differs between the two runs, where a run is two."""
    if not run.sides:
        return
    a, b = run.sides[A], run.sides[B]
    yield from (("machine", sentence("caveats", "machines", a, b)),) if a.machine != b.machine else ()
    yield "runs", sentence("caveats", "not_in_turns", a, b)
    yield from (("project", sentence("caveats", "commits", a, b)),) if a.commit != b.commit else ()
    for name in ("tolerances", "executor", "quick"):
        values = getattr(a, name), getattr(b, name)
        if values[0] != values[1]:
            yield name, sentence("caveats", "settings", name, *values)
    for kernel in run.kernels:
        if files := changed_sources(run, kernel):
            yield kernel.name, sentence("caveats", "sources", files)


def changed_sources(run: RunRecord, kernel: KernelInfo) -> list[str]:
    """A kernel's files that differ between the two runs, where a run is two."""
    if not run.sides:
        return []
    one, two = run.sides[A].sources, run.sides[B].sources
    return [name for name in kernel.sources if one.get(name) != two.get(name)]
