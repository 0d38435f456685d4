"""A bisection: versions one by one, until the first that differs is found.

Each look is a run of two environments, the good version and one other, restricted to what is asked about. A version's
record is written once it is clear, or all looks are spent.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from harness.config import keys
from harness.config.environments import PYPI
from harness.config.indexes import probe_index
from harness.config.listing import fetch_listing
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import pin_package
from harness.config.plan import PlannedEnvironment
from harness.config.pythons import changed_pythons, fit_pythons
from harness.config.wheel_files import supported_tags
from harness.errors import InfrastructureError, InputError
from harness.isolate.choose import wanted_bundle
from harness.isolate.remove import remove_environment
from harness.run.folders import now_utc
from harness.run.prepare import Options, Prepared, make_plan
from harness.schema.bisection_records import BisectionRecord, CellSeen, Question, Verdict, VersionRecord
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.run_records import Selection
from harness.schema.storage import Run, load_record, save_record
from harness.search.bisect import environments
from harness.search.bisect import plan as planning
from harness.search.bisect.answer import conclude, describe, print_question, print_table
from harness.search.bisect.observe import observe
from harness.search.bisect.oracle import LEVEL, LOOKS, TRIAL_FACTORS, differing, judge, launch_counts
from harness.search.bisect.releases import in_order, releases_between
from harness.search.bisect.subject import (
    Subject,
    asked,
    cell_names,
    derived_matrix,
    environment_at,
    held_environment,
    selection_of,
    version_in,
)
from harness.search.loop import Search, recorded, working_on
from harness.tools import cache_folder
from harness.typed import typed
from harness.worker import protocol


@dataclass(frozen=True, kw_only=True)
class Look:
    """One run, and what it shows of the good version and of the other, by version."""

    run: Run
    environments: dict[str, EnvironmentRecord]
    cells: dict[str, list[CellSeen]]


class CannotTell(Exception):
    """A version of which nothing can be seen here; `environment` is what was made of it all the same."""

    def __init__(self, why: str, environment: EnvironmentRecord | None = None) -> None:
        super().__init__(why)
        self.environment = environment


@dataclass(kw_only=True)
class Bisection(Search[str, BisectionRecord]):
    """One bisection: its folder, its question, and what is recorded of it."""

    subject: Subject
    options: Options
    matrix: Matrix
    prepared: Prepared
    folder: Path
    question: Question
    keep: bool = False  # the environments of the versions between
    seen: dict[str, VersionRecord] = field(default_factory=dict)

    @cached_property
    def versions(self) -> list[str]:
        return [release.version for release in self.question.releases]

    @property
    def records(self) -> list[VersionRecord]:
        return [self.seen[version] for version in self.versions if version in self.seen]

    def version_path(self, version: str) -> Path:
        return self.folder / "versions" / f"{version}.json"

    def recall(self) -> str:
        for version in self.versions:
            if self.version_path(version).exists():
                self.seen[version] = load_record(self.version_path(version), VersionRecord)
        return f"{', '.join(self.seen)} recorded before" if self.seen else ""

    def labels(self) -> list[int | None]:
        """What is known of each version: `harness.search.bisect.plan`."""
        labels: list[int | None] = []
        for release in self.question.releases:
            record = self.seen.get(release.version)
            if record is None:
                labels.append(planning.UNKNOWN if release.skipped else None)
            else:
                labels.append(planning.UNKNOWN if record.label is None else record.label)
        return labels

    # -- the loop -----------------------------------------------------------------------------------------------

    def next_step(self) -> str | None:
        """The bad version first: beside the good one, which every look measures too."""
        question = self.question
        if question.good not in self.seen or question.bad not in self.seen:
            return question.bad
        self.remove_environments()
        index = planning.next_version(self.labels(), every=question.every)
        return None if index is None else self.versions[index]

    def take(self, step: str) -> None:
        ends = step == self.question.bad
        # An engine's disk may be another machine's; and but for one package, the held environment's wheels are there.
        here = self.prepared.choice.executor == "venv" and not self.subject.component
        named = [self._is_named(version) for version in ([self.question.good, step] if ends else [step])]
        if here and not all(named):
            environments.refuse_without_room(cache_folder())
        if ends:
            self.ask_ends()
            return
        apart = here and not self.keep and not all(named)
        with environments.wheels_apart(cache_folder()) if apart else nullcontext():
            self.ask(step)

    def _is_named(self, version: str) -> bool:
        return environment_at(self.matrix, self.subject, version) in self.matrix.environments

    def conclude(self) -> BisectionRecord:
        record = conclude(self.question, self.records, self.labels())
        save_record(self.folder / "bisection.json", record)
        self.remove_environments(ends=True)
        return record

    def remove_environments(self, *, ends: bool = False) -> None:
        """Those that are needed no more, also of a session that was killed."""
        if self.keep:
            return
        named = environments.named_environments(self.matrix)
        for record in self.records:
            if record.environment in named or (record.version == self.question.good and not ends):
                continue
            made = record.environment, record.environment_key, self.question.created_utc
            if remove_environment(self.prepared.choice, cache_folder(), *made):
                print(f"removed {record.environment}: its answer is recorded (--keep keeps it)", flush=True)
        environments.remove_own_wheels(cache_folder())

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, version: str, number: int) -> Look:
        """Run the good version beside another. CannotTell where the other cannot be had here."""
        question, selection = self.question, selection_of(self.subject)
        timed = question.what == "latency"
        launches = question.looks[-1] if timed else 1
        derived = derived_matrix(self.matrix, self.subject, [question.good, version], 0 if timed else number, launches)
        try:
            self._pin(derived, selection)
            plan = make_plan(replace(self.options, derived=derived), selection, write_pins=True).plan
        except InputError as error:
            if version in (question.good, question.bad):
                raise
            raise CannotTell(error.message) from None
        run = self.measure(derived, selection, blocks=question.looks[number] if timed else 0)
        made = {record.id: record for record in run.environments()}
        for planned in plan.environments:  # the good one first
            record = made[planned.id]
            if record.status == protocol.OK:
                continue
            problem = probe_index(planned.index)
            if problem or version_in(self.matrix, planned.spec, self.subject) in (question.good, question.bad):
                raise InfrastructureError(
                    f"{record.id}: {problem or record.message}",
                    "once it is mended, the same command then goes on from here",
                )
            raise CannotTell(record.message, record)
        by_version = {version_in(self.matrix, e.spec, self.subject): e.id for e in plan.environments}
        seen = {name: observe(run, plan, id, question.what, question.target) for name, id in by_version.items()}
        return Look(run=run, environments={name: made[id] for name, id in by_version.items()}, cells=seen)

    def _pin(self, derived: Matrix, selection: Selection) -> None:
        """Of a package: pin files that differ in it alone, so that nothing else can be what differs."""
        package, subject = self.subject.component, self.subject
        if package:
            held = held_environment(self.matrix, subject.held)
            plan = make_plan(replace(self.options, derived=derived), selection, write_pins=False).plan
            for each in plan.environments:
                if each.spec not in self.matrix.environments:
                    same = PlannedEnvironment(spec=held, index=each.index)
                    pin_package(self.options.root, same, each, self.matrix, package)

    def ask_ends(self) -> None:
        """Both ends, until they are shown to differ, or all looks are spent."""
        question, begun = self.question, (now_utc(), time.monotonic())
        for number in range(LOOKS):
            look = self.look(question.bad, number)
            bad, good = look.cells[question.bad], look.cells[question.good]
            differ = differing(bad, good, question.what, question.min_effect)
            if differ:
                break
        if self._has_no_time(bad):
            raise InfrastructureError(
                f"no time of {question.target} at both ends: {bad[0].message}",
                "ask for its correctness: --what correctness",
            )
        self.record(question.good, "good", planning.GOOD, (begun[0], time.monotonic()), look, number + 1)
        self.record(question.bad, "bad" if differ else "good", 1 if differ else planning.GOOD, begun, look, number + 1)

    def ask(self, version: str) -> None:
        begun = (now_utc(), time.monotonic())
        labels, label = self.labels(), None
        neighbours = planning.neighbours(labels, self.versions.index(version))
        try:
            for number in range(self.seen[self.question.bad].looks - 1, LOOKS):  # fewer did not tell the ends apart
                look = self.look(version, number)
                label = self._label(version, look, neighbours, last=number == LOOKS - 1)
                if label is not None:
                    break
        except CannotTell as problem:
            self.record(version, "skipped", None, begun, problem)
            return
        verdict: Verdict = "undecided"
        if label is not None:
            verdict = "good" if label == planning.GOOD else "bad" if label == labels[-1] else "neither"
        self.record(version, verdict, label, begun, look, number + 1)

    def _has_no_time(self, cells: list[CellSeen]) -> bool:
        return self.question.what == "latency" and not any(cell.ratio for cell in cells)

    def _label(self, version: str, look: Look, neighbours: tuple[int, int], *, last: bool) -> int | None:
        question, cells = self.question, look.cells[version]
        if self._has_no_time(cells):
            raise CannotTell(f"no time: {cells[0].message}", look.environments[version])
        records = [self.seen[question.bad], *self.records]  # the ends were told apart: they speak for their labels
        first = {record.label: record.cells for record in reversed(records) if record.label is not None}
        first[planning.GOOD] = look.cells[question.good]  # on the same inputs, in the same blocks
        return judge(cells, first, neighbours, question.what, question.min_effect, last=last)

    def record(
        self,
        version: str,
        verdict: Verdict,
        label: int | None,
        begun: tuple[str, float],
        seen: Look | CannotTell,
        looks: int = 0,
    ) -> None:
        path = self.version_path(version)
        made: dict[str, Any] = {"status": protocol.OK}  # `look` goes on with nothing else
        if isinstance(seen, Look):
            environment: EnvironmentRecord | None = seen.environments[version]
            made |= {"cells": seen.cells[version], "looks": looks, "run": seen.run.folder.name}
            if environment and (found := environment.observed):
                made |= {"torch": found.torch, "torch_cuda": found.torch_cuda or "none", "torch_git": found.torch_git}
        else:
            environment = seen.environment
            made = {"status": protocol.BROKEN, "message": str(seen)}
        if environment is not None:
            made |= {"environment": environment.id, "environment_key": environment.key}
        if not path.exists():  # of a good end that was recorded before a kill
            took = round(time.monotonic() - begun[1], 1)
            record = VersionRecord(
                version=version, verdict=verdict, label=label, started_utc=begun[0], duration_s=took, **made
            )
            save_record(path, record)
        self.seen[version] = load_record(path, VersionRecord)
        print(f"{version}: {self.seen[version].verdict}: {describe(self.seen[version])}", flush=True)


def _question(subject: Subject, options: Options, prepared: Prepared, matrix: Matrix, id: str, every: bool) -> Question:
    plan = prepared.plan
    base = plan.environment(plan.baseline)
    names = cell_names(plan, plan.baseline, subject.target)
    if not names:
        raise InputError(
            f"--target {subject.target}: no cell that is left has it",
            f"see the matrix with: {typed('matrix', '--list')}",
        )
    package, index = subject.component or "torch", PYPI if subject.component else base.index
    releases = releases_between(
        fetch_listing(index, package),
        subject.good,
        subject.bad,
        base.spec,
        index,
        supported_tags(base.spec.python),
        package,
    )
    for end in (releases[0], releases[-1]):
        if end.skipped:
            name = subject.component or "PyTorch"
            raise InputError(f"{name} {end.version}: {end.skipped} on {index}", "choose another `python` for it")
    kernels, workloads, devices = (list(dict.fromkeys(column)) for column in zip(*names.values(), strict=True))
    return Question(
        id=id,
        created_utc=now_utc(),
        command=list(options.command),
        good=releases[0].version,
        bad=releases[-1].version,
        component=subject.component,
        held=held_environment(matrix, subject.held).id(base.index) if subject.component else "",
        what=subject.what,
        target=subject.target,
        kernels=kernels,
        workloads=workloads,
        devices=devices,
        executor=plan.facts.executor,
        index=index,
        fallbacks=list(plan.fallbacks),
        releases=releases,
        level=LEVEL,
        looks=list(launch_counts(len(names)) if subject.what == "latency" else TRIAL_FACTORS),
        min_effect={device: matrix.thresholds.min_effect(device) for device in ("cpu", "cuda")},
        every=every,
    )


def with_fitting_python(subject: Subject, matrix: Matrix, root: Path) -> Subject:
    """Return the subject with a Python that both ends have wheels for, where the good one's is none."""
    asked = derived_matrix(matrix, subject, [subject.good, subject.bad], 0, 1)
    fitted = fit_pythons(asked, root)
    changed, pythons = changed_pythons(asked, fitted), {spec.python for spec in fitted.environments}
    if not changed or len(pythons) > 1:
        return subject
    print(changed, flush=True)
    return replace(subject, python=pythons.pop())


def run_bisection(
    subject: Subject, options: Options, *, every: bool = False, keep: bool = False, list_only: bool = False
) -> tuple[Path, BisectionRecord] | None:
    """Bisect, or go on with what was begun. The folder of the records, and the answer; None with `list_only`."""
    in_order(subject.good, subject.bad)
    matrix, _ = load_matrix(options.matrix_path, options.base_image)
    subject = asked(subject, matrix)
    if not subject.component and wanted_bundle(options.executor, options.bundle, os.environ) is None:
        subject = with_fitting_python(subject, matrix, options.root)
    ends = derived_matrix(matrix, subject, [subject.good, subject.bad], 0, 1)
    prepared = make_plan(replace(options, derived=ends), selection_of(subject), write_pins=False)
    plan = prepared.plan
    key = keys.of(
        "bisection",
        run=plan.digest,
        what=subject.what,
        target=subject.target,
        every=every,
        thresholds=plan.thresholds.model_dump(),
        limits=plan.limits.model_dump(),
    )
    of = f"{subject.component}-" if subject.component else ""
    id = f"{of}{subject.good}-{subject.bad}-{subject.what}-{subject.target}-{key[:12]}"
    folder = options.root / "reports" / "bisections" / id

    ask = partial(_question, subject, options, prepared, matrix, id, every)
    if list_only:
        print_question(ask())
        return None
    with working_on("bisection", folder, key):
        question = recorded(folder, Question, ask)
        print_question(question)
        record = Bisection(
            subject=subject,
            options=options,
            matrix=matrix,
            prepared=prepared,
            folder=folder,
            question=question,
            keep=keep,
        ).run()
    print_table(record)
    return folder, record
