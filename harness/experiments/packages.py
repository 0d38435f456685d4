"""The factor experiment on packages: PyTorch is held, and one package at a time is the other environment's, both ways.

All else in an environment's pin file stays, by hash. What is measured is an ordinary run of its own, of both
environments and of two more for each package that differs. So times are compared within rounds, a pair that does not
load is a broken environment with its message, and what was interrupted goes on. A record of each workload and package
holds what that run saw.

What a package can matter for is decided by its name:

* NVIDIA's libraries and Triton on a GPU only, without those that only mark and profile; of a kernel that calls no
  PyTorch only those that it links;
* libraries under PyTorch's own operators on the CPU (MKL, OpenMP's, TBB), for code that calls PyTorch;
* numpy, SciPy and whatever `packages:` names, for Python files, kernels with their own binding and PyTorch's operators.
  What builds and installs is none of them.

A package that one of the two lacks, and that `packages:` names for the other, is put in and taken out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.config import keys
from harness.config.environments import Environment, package_versions
from harness.config.kernels import Kernel
from harness.config.matrix import Matrix
from harness.config.pins import ensure_pins, pins_alike, pins_path, swapped_pins
from harness.config.plan import Plan, PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError
from harness.executors.remove import Add, shared_environments
from harness.experiments.base import path_of
from harness.experiments.factors import sum_up
from harness.experiments.plan import Focus, find_changes
from harness.experiments.run import find_slowed, planned
from harness.run.folders import now_utc
from harness.run.prepare import Prepared, RunOptions, make_plan
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.experiment_records import ExperimentFactor, FactorRecord, FactorResult
from harness.schema.packages import changed, counts, only_packages
from harness.schema.records import Device, ValidationRecord
from harness.schema.run_records import Cell, RunRecord, Selection
from harness.schema.storage import Run, load_record, save_record
from harness.stats.medians import COLD, time_us
from harness.tools import cache_folder
from harness.typed import typed
from harness.worker import protocol

TOOLS = ("torch", "ninja", "setuptools", "pip", "wheel")
FIRST = ("numpy", "triton", "pytorch-triton", "nvidia-cudnn", "nvidia-cublas")  # the likeliest
REPLICAS = range(90, 100)  # of exchanged environments that would else have another one's id
TIMED_LAUNCHES = 5  # of each environment, at most: enough where no launch of one lies among another's
MOST_PACKAGES = 6  # of two environments: each is two environments more
Measure = Callable[[RunOptions, Selection], Run]
OF_HOST = "the host's PyTorch is what this machine has: nothing in it is exchanged"
TOO_MANY = f"not exchanged: at most {MOST_PACKAGES} packages are, first those that matrix.yaml names"


@dataclass(frozen=True, kw_only=True)
class DifferingPackage:
    """A package that two environments differ in, and its version in each, '' where it is not there; `why` it cannot be
    exchanged, or ''."""

    name: str
    versions: tuple[str, str]
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ExchangedEnvironment:
    """An environment, the home, with one package of another; `why` it cannot be made, or ''."""

    package: str
    home: str
    level: str
    spec: Environment
    why: str = ""


def find_differing(
    base: EnvironmentRecord, this: EnvironmentRecord, kernel: Kernel, device: Device, named: Collection[str]
) -> list[DifferingPackage]:
    """Return the packages that differ and can matter for a kernel on a device, those that matrix.yaml names first."""
    found = []
    for name, versions in changed(base, this).items():
        if name not in TOOLS and can_matter(name, kernel, device, named):
            missing = "" if all(versions) or name in named else base.id if not versions[0] else this.id
            why = f"{missing} does not hold it: there is nothing to exchange" if missing else ""
            found.append(DifferingPackage(name=name, versions=versions, why=why))

    def rank(package: DifferingPackage) -> tuple[bool, bool, int, str]:
        place = next((index for index, first in enumerate(FIRST) if package.name.startswith(first)), len(FIRST))
        return bool(package.why), package.name not in named, place, package.name

    return sorted(found, key=rank)


def can_matter(package: str, kernel: Kernel, device: Device, named: Collection[str]) -> bool:
    if kernel.is_bound:  # it calls no PyTorch
        return device == "cuda" and any(f"-{library}-" in f"{package}-" for library in kernel.libraries)
    return package in named or counts(package, device)


def exchange(specs: Mapping[str, Environment], packages: Sequence[DifferingPackage]) -> list[ExchangedEnvironment]:
    """Return, for each package, either of two environments, which are given by id, with the other's."""
    (base, ours), (this, theirs) = specs.items()
    made, found = [ours, theirs], []
    for package in packages:
        for home, level, version in ((base, this, package.versions[1]), (this, base, package.versions[0])):
            spec = specs[home]
            if not package.why:
                spec = with_package(spec, package.name, version)
                spares = (spec.model_copy(update={"replica": replica}) for replica in REPLICAS)
                spec = next(each for each in (spec, *spares) if each in made or each.id() not in {e.id() for e in made})
                made.append(spec)
            found.append(ExchangedEnvironment(package=package.name, home=home, level=level, spec=spec, why=package.why))
    return found


def with_package(spec: Environment, package: str, version: str) -> Environment:
    """Return the environment with that package in that version; without it, where that is ''."""
    own = package_versions(spec.packages) | {package: version}
    return spec.model_copy(update={"packages": [f"{name}=={number}" for name, number in own.items() if number]})


@dataclass(frozen=True, kw_only=True)
class PackageQuestion:
    """A kernel, or a group of PyTorch's operators, on workloads on which it changed between the baseline and the cells'
    environment, and the packages that may be why."""

    cells: tuple[Cell, ...]  # of one kernel, device and environment
    timed: bool
    specs: dict[str, Environment]  # of both environments, by id, the baseline first
    packages: tuple[DifferingPackage, ...]


def find_changed_cells(run: Run, focus: Focus) -> dict[Cell, bool]:
    """Return what changed, and whether in time or memory: results, of kernels by the cases that other experiments are
    made of; times and peaks, of kernels and of operators."""
    record = run.load()
    validations = {(v.kernel, v.workload, v.device, v.environment): v for v in run.validations()}
    builds = {(b.kernel, b.device, b.environment): b for b in run.builds()}
    cells = [cell for case in planned(run, focus).cases for cell in case.cells]
    for cell in record.cells:
        is_wanted = focus.admits(record, cell.kernel, cell.workload, cell.device)
        if cell.kernel in record.pytorch and is_wanted and focus.admits_environment(cell.environment):
            cells.append(cell)
    found: dict[Cell, bool] = {}
    for cell in cells:
        pair, place = (record.baseline, cell.environment), (cell.kernel, cell.workload, cell.device)
        base, this = (validations.get((*place, each)) for each in pair)
        ours, theirs = (builds.get((cell.kernel, cell.device, each)) for each in pair)
        if base is not None and this is not None and find_changes(base, this, ours, theirs, subject_of(record, cell)):
            found[cell] = False
    for target in find_slowed(run, focus):
        cell = target.cells[1]
        if target.target == subject_of(record, cell):
            found[cell] = True
    return found


def subject_of(run: RunRecord, cell: Cell) -> str:
    return protocol.MODEL if cell.kernel in run.pytorch else protocol.KERNEL


def list_questions(run: Run, matrix: Matrix, plan: Plan, focus: Focus, *, again: bool = False) -> list[PackageQuestion]:
    """Return what packages may answer, and the run has no answer to. `again`: also where none could be exchanged."""
    stacks = {record.id: record for record in run.environments()}
    groups: dict[tuple[str, str, Device], dict[Cell, bool]] = defaultdict(dict)
    for cell, timed in find_changed_cells(run, focus).items() if plan.mode == "matrix" else ():
        groups[cell.environment, cell.kernel, cell.device][cell] = timed
    found = []
    for (environment, kernel, device), times in groups.items():
        specs = {id: plan.environment(id).spec for id in (plan.baseline, environment)}
        named = package_versions([*matrix.packages, *(package for spec in specs.values() for package in spec.packages)])
        pair = stacks[plan.baseline], stacks[environment]
        packages = find_differing(*pair, matrix.kernel(kernel), device, named)
        if len(only_packages(*pair)) == 1:  # what was measured is the exchange
            continue
        cells = [cell for cell in times if any(_is_open(run, cell, package, again) for package in packages)]
        if cells:
            timed = any(times[cell] for cell in cells)
            found.append(PackageQuestion(cells=tuple(cells), timed=timed, specs=specs, packages=tuple(packages)))
    return found


def _is_open(run: Run, cell: Cell, package: DifferingPackage, again: bool) -> bool:
    path = path_of(run, cell, name_of(package.name))
    return not path.exists() or (again and load_record(path, FactorRecord).status != protocol.OK)


def name_of(package: str) -> str:
    """Return the name of a package's record."""
    return f"{ExperimentFactor.PACKAGE.value}-{package}"


def exchange_packages(
    options: RunOptions,
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
    questions = list_questions(run, prepared.matrix, prepared.plan, focus, again=again)
    if not questions:
        return
    with shared_environments(prepared.choice, cache_folder(), now_utc()) as add:
        for question in questions:
            packages, more = ", ".join(each.name for each in question.packages), len(question.cells) - 1
            others = f" and {more} more" if more else ""
            print(f"exchanging packages: {question.cells[0].id}{others}: {packages}", flush=True)
            records = PackageExchange(options, selection, prepared, question, add).answer(measure)
            for cell, record in records:
                save_record(path_of(run, cell, record.name), record)
            for record in {record.package: record for _, record in records}.values():
                if record.status != protocol.OK:
                    print(f"{record.package} was not exchanged: {record.message}", flush=True)
            if all(record.status != protocol.OK for _, record in records):
                print(f"nothing was exchanged; to try again: {typed('explain', str(run.folder))}", flush=True)


@dataclass(frozen=True, kw_only=True)
class PackageRun:
    """The ordinary run that answers a question: `ids` of the environments by what they were made of."""

    run: Run
    digest: str
    ids: dict[str, str]

    def read(self, cell: Cell, spec: Environment, home: str, level: str) -> list[FactorResult]:
        """Return what the run saw of every target of a cell in one of its environments."""
        id = self.ids[spec.model_dump_json()]
        stack = next(record for record in self.run.environments() if record.id == id)
        place: dict[str, Any] = {"home": home, "level": level, "environment": id}
        if stack.status != protocol.OK:
            return [FactorResult(**place, status=stack.status, message=stack.message)]
        validation = load_record(self.run.validation_path(replace(cell, environment=id)), ValidationRecord)
        subject = subject_of(self.run.load(), cell)
        launches = [each for each in self.run.launches() if (each.environment, each.kernel) == (id, cell.kernel)]
        timings = [each for launch in launches for each in launch.timings if each.workload == cell.workload]
        results = []
        for target in dict.fromkeys(
            [subject, *(each.target for recipe in validation.recipes for each in recipe.targets)]
        ):
            own = [timing for timing in timings if timing.target == target]
            medians_us = [time_us(timing, COLD) for timing in own]
            result = FactorResult(
                **place,
                **read_outputs(validation, target, subject),
                target=target,
                times_us=[median for median in medians_us if median is not None],
                peaks_bytes=[timing.memory.peak_bytes for timing in own if timing.memory is not None],
            )
            results.append(result)
        return results


@dataclass(frozen=True)
class PackageExchange:
    """One question, and the run that answers it. `add` is told the ids and keys of exchanged environments."""

    options: RunOptions
    selection: Selection
    prepared: Prepared
    question: PackageQuestion
    add: Add

    def answer(self, measure: Measure) -> list[tuple[Cell, FactorRecord]]:
        """Return a record of each cell and package."""
        question, started_utc, started = self.question, now_utc(), time.monotonic()
        made = [replace(e, why=e.why or self._find_clash(e)) for e in exchange(question.specs, self._packages())]
        wanted = [each for each in made if not each.why]
        seen = None
        try:
            seen = self._measure(wanted, measure) if wanted else None
        except HarnessError as error:  # no index, or no image: what the run holds is worth its page
            made = [replace(each, why=each.why or str(error)) for each in made]
        records = []
        for cell in question.cells:
            for package in question.packages:
                own = [each for each in made if each.package == package.name]
                results = self._read(seen, cell, own)
                ran = any(each.level != each.home and each.target for each in results)
                record = FactorRecord(
                    **vars(cell),
                    status=protocol.OK if ran else protocol.NOT_RUN,
                    message="" if ran else results[-1].message,
                    key=keys.of("packages", run=seen.digest if seen else "", timed=question.timed),
                    started_utc=started_utc,
                    duration_s=round(time.monotonic() - started, 3),
                    factor=ExperimentFactor.PACKAGE,
                    baseline=next(iter(question.specs)),
                    package=package.name,
                    versions=dict(zip(question.specs, package.versions, strict=True)),
                    run=seen.run.folder.name if seen else "",
                    timed=question.timed,
                    results=results,
                )
                records.append((cell, record))
        return records

    def _packages(self) -> list[DifferingPackage]:
        """Return the packages, with why some of them are not exchanged."""
        packages = self.question.packages
        if any(spec.is_host for spec in self.question.specs.values()):
            return [replace(each, why=OF_HOST) for each in packages]
        able = [each for each in packages if not each.why][:MOST_PACKAGES]
        return [each if each in able else replace(each, why=each.why or TOO_MANY) for each in packages]

    def _read(
        self, seen: PackageRun | None, cell: Cell, exchanged: Sequence[ExchangedEnvironment]
    ) -> list[FactorResult]:
        """Return what the run saw in both environments as they are, and in each with the other's package."""
        results = []
        for id, spec in self.question.specs.items() if seen else ():
            results += seen.read(cell, spec, id, id) if seen else []
        for each in exchanged:
            if each.why or seen is None:
                row = FactorResult(status=protocol.NOT_RUN, message=each.why, home=each.home, level=each.level)
                results.append(row)
            else:
                results += seen.read(cell, each.spec, each.home, each.level)
        return results

    def _measure(self, wanted: Sequence[ExchangedEnvironment], measure: Measure) -> PackageRun:
        """Return the run of both environments and those that are wanted. HarnessError where it cannot be made."""
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
        with self._write_pins(wanted):
            made = make_plan(options, selection, write_pins=True)
            ids = [each.id for each in made.plan.environments]
            if ids[:2] != list(question.specs):
                raise InfrastructureError(
                    f"wheels come from another index than those of {', '.join(question.specs)}",
                    "once that index answers again, start the same command",
                )
            self._announce(made)
            run = measure(options, selection)
        ids_of = {spec.model_dump_json(): id for spec, id in zip(specs, ids, strict=True)}
        return PackageRun(run=run, digest=made.plan.digest, ids=ids_of)

    def _announce(self, made: Prepared) -> None:
        """Tell which environments are there for this only, before they are made: what interrupts the run leaves
        none."""
        root, cache = self.options.root, cache_folder()
        executor = self.options.machine.make_executor(made.choice, made.matrix, made.plan, root, cache)
        for environment in made.plan.environments:
            if environment.spec not in self.prepared.matrix.environments:
                self.add(environment.id, executor.key(environment, ensure_pins(root, environment, made.matrix)[0]))

    @contextmanager
    def _write_pins(self, wanted: Sequence[ExchangedEnvironment]) -> Iterator[None]:
        """Write the pin files of exchanged environments: one package's lines are the other's. Remove them afterwards,
        unless they were there."""
        written = []
        try:
            for each in wanted:
                path = self._path(each)
                if not path.exists():
                    protocol.write_atomically(str(path), self._swap_pins(each).encode())
                    written.append(path)
            yield
        finally:
            for path in written:
                path.unlink(missing_ok=True)

    def _path(self, each: ExchangedEnvironment) -> Path:
        index = self.prepared.plan.environment(each.home).index
        return pins_path(self.options.root, PlannedEnvironment(spec=each.spec, index=index))

    def _swap_pins(self, each: ExchangedEnvironment) -> str:
        plan, matrix = self.prepared.plan, self.prepared.matrix
        ours, theirs = (
            ensure_pins(self.options.root, plan.environment(id), matrix)[0].read_text(encoding="utf-8")
            for id in (each.home, each.level)
        )
        return swapped_pins(ours, theirs, each.package)

    def _find_clash(self, each: ExchangedEnvironment) -> str:
        """Return why its environment would differ in more than the package: there is one of that name, pinned
        otherwise."""
        path = self._path(each)
        if not path.exists() or pins_alike(path.read_text(encoding="utf-8"), self._swap_pins(each)):
            return ""
        return f"{path.name} is there already, and differs in more than {each.package}"


def read_outputs(validation: ValidationRecord, target: str, subject: str) -> dict[str, Any]:
    """Return a target's outputs over all recipes. What ended is recorded of the subject."""
    rows = [(recipe, r) for recipe in validation.recipes for r in recipe.targets if r.target == target]
    failed = next((r for _, r in rows if r.status not in protocol.RAN), None)
    whole = validation if target == subject and validation.status not in protocol.RAN else failed
    if whole is not None:
        return {"status": whole.status, "message": whole.message}
    found = sum_up(rows, validation.decides)
    return {"status": protocol.OK if found["passed"] == found["runs"] else protocol.WRONG, **found}
