"""The experiment `component`: PyTorch is held, and one package at a time is the other environment's, both ways.

What is measured is an ordinary run of its own: both environments, and for each package that differs two more. So times
are compared within blocks, a pair that does not load is a broken environment with its message, and what was interrupted
goes on. A record of each workload holds what that run saw.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.config import keys
from harness.config.environments import Environment, package_versions
from harness.config.matrix import Matrix
from harness.config.pins import ensure_pins, pins_alike, pins_path, swapped_pins
from harness.config.plan import Plan, PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError
from harness.executors.remove import Add, shared_environments
from harness.experiments.components import MOST_PACKAGES, Component, Exchanged, differing, exchanges
from harness.experiments.plan import Focus, is_one_of, is_wanted, moves
from harness.experiments.run import planned, slowed
from harness.run.folders import now_utc
from harness.run.prepare import Options, Prepared, make_plan
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.experiment_records import ComponentResult, ComponentsRecord, TargetSeen
from harness.schema.packages import only_packages
from harness.schema.records import Device, LaunchRecord, ValidationRecord
from harness.schema.run_records import Cell, RunRecord, Selection
from harness.schema.storage import Run, load_record, save_record
from harness.stats.medians import COLD, time_us
from harness.tools import cache_folder
from harness.typed import typed
from harness.worker import protocol

EXPERIMENT = "component"
TIMED_LAUNCHES = 5  # of each environment, at most: enough where no launch of one lies among another's
Measure = Callable[[Options, Selection], Run]
OF_HOST = "the host's PyTorch is what this machine has: nothing in it is exchanged"
TOO_MANY = f"not exchanged: at most {MOST_PACKAGES} packages are, first those that matrix.yaml names"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A kernel, or a group of PyTorch's operators, on workloads on which it moved between the baseline and the cells'
    environment, and the packages that may be why."""

    cells: tuple[Cell, ...]  # of one kernel, device and environment
    timed: bool
    specs: dict[str, Environment]  # of both environments, by id
    components: tuple[Component, ...]


def moved_cells(run: Run, focus: Focus) -> dict[Cell, bool]:
    """What moved, and whether in time or memory: results, of kernels by the cases that other experiments are made of;
    times and peaks, of kernels and of operators."""
    record = run.load()
    validations = {(v.kernel, v.workload, v.device, v.environment): v for v in run.validations()}
    builds = {(b.kernel, b.device, b.environment): b for b in run.builds()}
    found: dict[Cell, bool] = {}
    operators = (
        cell
        for cell in record.cells
        if cell.kernel in record.pytorch
        and is_wanted(record, focus, cell.kernel, cell.workload, cell.device)
        and is_one_of(cell.environment, focus.torches)
    )
    for cell in (*(cell for case in planned(run, focus).cases for cell in case.cells), *operators):
        place = cell.kernel, cell.workload, cell.device
        base, this = (validations.get((*place, environment)) for environment in (record.baseline, cell.environment))
        codes = [builds.get((cell.kernel, cell.device, e)) for e in (record.baseline, cell.environment)]
        if base is not None and this is not None and moves(base, this, codes[0], codes[1], _subject(record, cell)):
            found[cell] = False
    for target in slowed(run, focus):
        cell = target.cells[1]
        if target.target == _subject(record, cell):
            found[cell] = True
    return found


def _subject(run: RunRecord, cell: Cell) -> str:
    return protocol.MODEL if cell.kernel in run.pytorch else protocol.KERNEL


def open_questions(run: Run, matrix: Matrix, plan: Plan, focus: Focus, *, again: bool = False) -> list[Question]:
    """What packages may answer, and the run has no answer to. `again`: also where none could be exchanged."""
    stacks = {record.id: record for record in run.environments()}
    groups: dict[tuple[str, str, Device], dict[Cell, bool]] = defaultdict(dict)
    for cell, timed in moved_cells(run, focus).items() if plan.mode == "matrix" else ():
        path = record_path(run, cell)
        if not path.exists() or (again and load_record(path, ComponentsRecord).status != protocol.OK):
            groups[cell.environment, cell.kernel, cell.device][cell] = timed
    found = []
    for (environment, kernel, device), cells in groups.items():
        specs = {id: plan.environment(id).spec for id in (plan.baseline, environment)}
        named = package_versions([*matrix.packages, *(package for spec in specs.values() for package in spec.packages)])
        pair = stacks[plan.baseline], stacks[environment]
        components = differing(*pair, matrix.kernel(kernel), device, named)
        if components and len(only_packages(*pair)) != 1:  # else what was measured is the exchange
            timed = any(cells.values())
            found.append(Question(cells=tuple(cells), timed=timed, specs=specs, components=tuple(components)))
    return found


def record_path(run: Run, cell: Cell) -> Path:
    return run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, EXPERIMENT)


def exchange_components(
    options: Options,
    selection: Selection,
    prepared: Prepared,
    run: Run,
    focus: Focus,
    measure: Measure,
    *,
    again: bool = False,
) -> None:
    """Answer what the run's records ask. `measure` makes an ordinary run. Environments made for it are removed when all
    is answered: questions share them, and so may other processes."""
    if found := open_questions(run, prepared.matrix, prepared.plan, focus, again=again):
        with shared_environments(prepared.choice, cache_folder(), now_utc()) as add:
            _answer(found, options, selection, prepared, run, measure, add)


def _answer(
    found: Sequence[Question],
    options: Options,
    selection: Selection,
    prepared: Prepared,
    run: Run,
    measure: Measure,
    add: Add,
) -> None:
    for question in found:
        packages, more = ", ".join(each.package for each in question.components), len(question.cells) - 1
        others = f" and {more} more" if more else ""
        print(f"exchanging packages: {question.cells[0].id}{others}: {packages}", flush=True)
        records = Exchange(options, selection, prepared, question, add).records(measure)
        for cell, record in zip(question.cells, records, strict=True):
            save_record(record_path(run, cell), record)
        for result in records[0].results:
            if result.status != protocol.OK:
                print(f"{result.package} of {result.package_of} in {result.torch_of}: {result.message}", flush=True)
        if records[0].status != protocol.OK:
            print(f"nothing was exchanged; to try again: {typed('explain', str(run.folder))}", flush=True)


@dataclass(frozen=True)
class Exchange:
    """One question, and the run that answers it. `add` is told the ids and keys of exchanged environments."""

    options: Options
    selection: Selection
    prepared: Prepared
    question: Question
    add: Add

    def records(self, measure: Measure) -> list[ComponentsRecord]:
        """One of each cell."""
        question, started, begun = self.question, now_utc(), time.monotonic()
        if any(spec.is_host for spec in question.specs.values()):
            able, left = [], [replace(each, why=OF_HOST) for each in question.components]
        else:
            able = [each for each in question.components if not each.why][:MOST_PACKAGES]
            left = [replace(each, why=each.why or TOO_MANY) for each in question.components if each not in able]
        made = [(each, self._clash(each)) for each in exchanges(question.specs, able)]
        wanted, (base, this) = [each for each, clash in made if not clash], question.specs
        results = [_not_run(each, base, this, each.why) for each in left]
        results += [_not_run(e.component, e.torch_of, e.package_of, clash) for e, clash in made if clash]
        seen: dict[Cell, list[ComponentResult]] = {}
        digest = name = ""
        if wanted:
            try:
                digest, run, seen = self._measured(wanted, measure)
                name = run.folder.name
            except HarnessError as error:  # a bundle without them, or no index: what the run holds is worth its page
                why = f"{error}{self._elsewhere(wanted)}"
                results += [_not_run(each.component, each.torch_of, each.package_of, why) for each in wanted]

        def record(cell: Cell) -> ComponentsRecord:
            every = [*seen.get(cell, []), *results]
            ran = any(result.package and result.status == protocol.OK for result in every)
            return ComponentsRecord(
                **vars(cell),
                key=keys.of("components", run=digest, timed=question.timed),
                started_utc=started,
                duration_s=round(time.monotonic() - begun, 3),
                status=protocol.OK if ran else protocol.NOT_RUN,
                message="" if ran else every[-1].message,
                baseline=base,
                run=name,
                timed=question.timed,
                results=every,
            )

        return list(map(record, question.cells))

    def _measured(
        self, wanted: Sequence[Exchanged], measure: Measure
    ) -> tuple[str, Run, dict[Cell, list[ComponentResult]]]:
        """(the run's key, the run, what it saw of each cell). HarnessError where it cannot be made."""
        question, matrix = self.question, self.prepared.matrix
        specs = list(question.specs.values())
        for each in wanted:
            specs += [each.spec] if each.spec not in specs else []
        launches = min(self.prepared.plan.launches_each, TIMED_LAUNCHES) if question.timed else 1
        some = {"launches": launches, "most_launches": launches}
        derived = matrix.model_copy(update={"environments": specs, "baseline": specs[0].id(), **some})
        options = replace(
            self.options,
            derived=derived,
            blocks=None if question.timed else 0,
            explain=False,
            kernelbench=None,
            fresh=False,
        )
        one, workloads = question.cells[0], tuple(cell.workload for cell in question.cells)
        selection = replace(
            self.selection, kernels=(one.kernel,), workloads=workloads, devices=(one.device,), launches=launches
        )
        with self._pinned(wanted):
            made = make_plan(options, selection, write_pins=True)
            ids = [each.id for each in made.plan.environments]
            if ids[:2] != list(question.specs):
                raise InfrastructureError(
                    f"wheels come from another index than those of {', '.join(question.specs)}",
                    "once that index answers again, start the same command",
                )
            self._tell(made)
            run = measure(options, selection)
        id_of = {id: environment for environment, id in zip(specs, ids, strict=True)}
        stacks, taken = {record.id: record for record in run.environments()}, list(run.launches())
        seen_in = partial(_seen, run, stacks, taken)

        def seen(cell: Cell) -> Iterator[ComponentResult]:
            for id in ids[:2]:
                yield seen_in(cell, id, torch_of=id, package_of=id)
            for each in wanted:
                id = next(id for id, spec in id_of.items() if spec == each.spec)
                place = {"package": each.component.package, "torch_of": each.torch_of, "package_of": each.package_of}
                version = each.component.versions[list(question.specs).index(each.package_of)]
                yield seen_in(cell, id, version=version, **place)

        return made.plan.digest, run, {cell: list(seen(cell)) for cell in question.cells}

    def _tell(self, made: Prepared) -> None:
        """Before they are made, which environments are there for this alone: what interrupts the run leaves none."""
        root, cache = self.options.root, cache_folder()
        executor = self.options.machine.make_executor(made.choice, made.matrix, made.plan, root, cache)
        for environment in made.plan.environments:
            if environment.spec not in self.prepared.matrix.environments:
                self.add(environment.id, executor.key(environment, ensure_pins(root, environment, made.matrix)[0]))

    @contextmanager
    def _pinned(self, wanted: Sequence[Exchanged]) -> Iterator[None]:
        """Pin files of exchanged environments: one package's lines are the other's. Those that were not there are
        removed."""
        written = []
        try:
            for each in wanted:
                path = self._path(each)
                if not path.exists():
                    protocol.write_atomically(str(path), self._swapped(each).encode())
                    written.append(path)
            yield
        finally:
            for path in written:
                path.unlink(missing_ok=True)

    def _path(self, each: Exchanged) -> Path:
        index = self.prepared.plan.environment(each.torch_of).index
        return pins_path(self.options.root, PlannedEnvironment(spec=each.spec, index=index))

    def _swapped(self, each: Exchanged) -> str:
        """Its pin file."""
        plan, matrix = self.prepared.plan, self.prepared.matrix
        ours, theirs = (
            ensure_pins(self.options.root, plan.environment(id), matrix)[0].read_text(encoding="utf-8")
            for id in (each.torch_of, each.package_of)
        )
        return swapped_pins(ours, theirs, each.component.package)

    def _clash(self, each: Exchanged) -> str:
        """Why its environment would differ in more than the package: there is one of that name, pinned otherwise."""
        path = self._path(each)
        if not path.exists() or pins_alike(path.read_text(encoding="utf-8"), self._swapped(each)):
            return ""
        return f"{path.name} is there already, and differs in more than {each.component.package}"

    def _elsewhere(self, wanted: Sequence[Exchanged]) -> str:
        """What to do where no environment can be made on the spot."""
        if self.prepared.choice.bundle is None:
            return ""
        lines = (
            f'{{torch: "{spec.torch}", cuda: "{spec.cuda}", python: "{spec.python}", '
            f"packages: [{', '.join(spec.packages)}]}}"
            for spec in (each.spec for each in wanted)
        )
        return (
            f"; a bundle makes no environments: where images can be made, add under environments of matrix.yaml "
            f"{'; '.join(lines)}; then pack it again: {typed('bundle')}"
        )


def _not_run(component: Component, torch_of: str, package_of: str, why: str) -> ComponentResult:
    return ComponentResult(
        package=component.package, torch_of=torch_of, package_of=package_of, status=protocol.NOT_RUN, message=why
    )


def _seen(
    run: Run,
    stacks: Mapping[str, EnvironmentRecord],
    launches: Sequence[LaunchRecord],
    cell: Cell,
    id: str,
    *,
    torch_of: str,
    package_of: str,
    package: str = "",
    version: str = "",
) -> ComponentResult:
    """What a run saw of a cell in one of its environments."""
    stack = stacks[id]
    found = ComponentResult(
        package=package,
        version=version,
        torch_of=torch_of,
        package_of=package_of,
        environment=id,
        status=stack.status,
        message=stack.message,
    )
    if stack.status != protocol.OK:
        return found
    path = run.validation_path(replace(cell, environment=id))
    validation = load_record(path, ValidationRecord)
    times: dict[str, list[float]] = defaultdict(list)
    peaks: dict[str, list[int]] = defaultdict(list)
    for launch in launches:
        for timing in launch.timings if (launch.environment, launch.kernel) == (id, cell.kernel) else ():
            if timing.workload != cell.workload:
                continue
            median_us = time_us(timing, COLD)
            if median_us is not None:
                times[timing.target].append(median_us)
            if timing.memory is not None:
                peaks[timing.target].append(timing.memory.peak_bytes)
    subject = _subject(run.load(), cell)
    targets = []
    for target in dict.fromkeys((subject, *_targets(validation))):
        outputs = _outputs(validation, target, subject)
        targets.append(replace(outputs, times_us=times[target], peaks_bytes=peaks[target]))
    return replace(found, targets=targets)


def _targets(validation: ValidationRecord) -> list[str]:
    return [result.target for recipe in validation.recipes for result in recipe.targets]


def _outputs(validation: ValidationRecord, target: str, subject: str) -> TargetSeen:
    """A target's outputs over all recipes, against the truth where there is one. What ended is the subject's record."""
    rows = [(recipe, r) for recipe in validation.recipes for r in recipe.targets if r.target == target]
    judged = [(recipe.trials, r, next(iter(r.against), None)) for recipe, r in rows]
    failed = next((r for _, r, _ in judged if r.status not in protocol.RAN), None)
    whole = validation if target == subject and validation.status not in protocol.RAN else failed
    if whole is not None:
        return TargetSeen(target=target, status=whole.status, message=whole.message)
    known = [(trials, r, against) for trials, r, against in judged if against is not None]
    runs = sum(trials for trials, _, _ in known)
    passed = sum(against.passed.get(validation.decides, against.passed.get("kernelbench", 0)) for *_, against in known)
    return TargetSeen(
        target=target,
        status=protocol.OK if passed == runs else protocol.WRONG,
        runs=runs,
        passed=passed,
        max_units=max((a.max_units for *_, a in known if a.max_units is not None), default=None),
        output_sha256=[digest or "" for _, r in rows for digest in r.output_sha256],
    )
