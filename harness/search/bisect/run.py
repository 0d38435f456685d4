"""The workflow of a bisection: ask a version, record what was seen, until nothing is left to ask.

Each look is an ordinary run of two environments, the good version and one other, restricted to what is asked about;
`harness.run.workflow` makes it, or finds it made. A version's record is written once it is clear, or all looks
are spent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from harness.config.indexes import probe_index
from harness.config.matrix import Matrix
from harness.errors import InfrastructureError, InputError
from harness.run.folders import now_utc
from harness.run.prepare import Options, Prepared, make_plan
from harness.run.workflow import run_matrix
from harness.schema.bisection_records import BisectionRecord, CellSeen, Question, Verdict, VersionRecord
from harness.schema.records import EnvironmentRecord
from harness.schema.storage import Run, load_record, save_record
from harness.search.bisect import plan as planning
from harness.search.bisect.answer import conclude, describe
from harness.search.bisect.environments import (
    named_environments,
    refuse_without_room,
    remove_environment,
    remove_own_wheels,
    wheels_apart,
)
from harness.search.bisect.observe import observe
from harness.search.bisect.oracle import LOOKS, differing, judge
from harness.search.bisect.subject import Subject, derived_matrix, environment_of, selection_of
from harness.tools import cache_folder
from harness.worker import protocol


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command's options."""

    subject: Subject
    options: Options
    keep: bool = False
    every: bool = False


@dataclass(frozen=True, kw_only=True)
class Look:
    """One run, and what it says of the good version and of the other."""

    run: Run
    environment: EnvironmentRecord
    good: EnvironmentRecord
    cells: list[CellSeen]
    good_cells: list[CellSeen]


class CannotTell(Exception):
    """A version of which nothing can be seen here; `environment` is what was made of it all the same."""

    def __init__(self, why: str, environment: EnvironmentRecord | None = None) -> None:
        super().__init__(why)
        self.environment = environment


@dataclass
class Bisection:
    """One bisection: its folder, its question, and what is recorded of it."""

    asked: Asked
    matrix: Matrix
    prepared: Prepared
    folder: Path
    question: Question
    seen: dict[str, VersionRecord] = field(default_factory=dict)

    @cached_property
    def versions(self) -> list[str]:
        return [release.version for release in self.question.releases]

    def version_path(self, version: str) -> Path:
        return self.folder / "versions" / f"{version}.json"

    def recall(self) -> None:
        for version in self.versions:
            if self.version_path(version).exists():
                self.seen[version] = load_record(self.version_path(version), VersionRecord)

    def labels(self) -> list[int | None]:
        """What is known of each version: `harness.search.bisect.plan`."""

        def label(version: str, skipped: str) -> int | None:
            record = self.seen.get(version)
            if record is None:
                return planning.UNKNOWN if skipped else None
            return planning.UNKNOWN if record.label is None else record.label

        return [label(release.version, release.skipped) for release in self.question.releases]

    def record(self, version: str, verdict: Verdict, label: int | None, look: Look, looks: int, begun: tuple[str, float]
               ) -> None:  # fmt: skip
        good = version == self.question.good
        environment = look.good if good else look.environment
        record = VersionRecord(
            version=version,
            verdict=verdict,
            label=label,
            status=environment.status,
            message=environment.message,
            environment=environment.id,
            environment_key=environment.key,
            torch=environment.observed.torch if environment.observed else "",
            torch_cuda=(environment.observed.torch_cuda or "none") if environment.observed else "",
            looks=looks,
            cells=look.good_cells if good else look.cells,
            run=look.run.folder.name,
            started_utc=begun[0],
            duration_s=0 if good else round(time.monotonic() - begun[1], 1),
        )
        self._save(record)

    def skip(self, version: str, problem: CannotTell, begun: tuple[str, float]) -> None:
        environment = problem.environment
        self._save(
            VersionRecord(
                version=version,
                verdict="skipped",
                label=None,
                status=protocol.BROKEN,
                message=str(problem),
                environment=environment.id if environment else "",
                environment_key=environment.key if environment else "",
                started_utc=begun[0],
                duration_s=round(time.monotonic() - begun[1], 1),
            )
        )

    def _save(self, record: VersionRecord) -> None:
        if not self.version_path(record.version).exists():  # of a good end that was recorded before a kill
            save_record(self.version_path(record.version), record)
        self.seen[record.version] = load_record(self.version_path(record.version), VersionRecord)
        print(f"{record.version}: {record.verdict}: {describe(record)}", flush=True)

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, version: str, number: int) -> Look:
        """Run the good version beside another. CannotTell where the other cannot be had here."""
        question, options = self.question, self.asked.options
        timed = question.what == "latency"
        look = 0 if timed else number
        launches = question.looks[-1] if timed else 1
        derived = derived_matrix(self.matrix, self.asked.subject, [question.good, version], look, launches)
        given = replace(options, derived=derived, explain=False, blocks=question.looks[number] if timed else 0)
        try:
            plan = make_plan(given, selection_of(self.asked.subject), write_pins=True).plan
        except InputError as error:
            if version in (question.good, question.bad):
                raise
            raise CannotTell(error.message) from None
        run, _ = run_matrix(given, selection_of(self.asked.subject))
        other = next(e for e in plan.environments if e.spec.torch == version)
        records = {record.id: record for record in run.environments()}
        good, environment = records[plan.baseline], records[other.id]
        for record, spec in ((good, plan.environment(plan.baseline)), (environment, other)):
            if record.status == protocol.OK:
                continue
            problem = probe_index(spec.index)
            if problem or spec.spec.torch in (question.good, question.bad):
                raise InfrastructureError(
                    f"{record.id}: {problem or record.message}", "mend it; the same command then goes on from here"
                )
            raise CannotTell(record.message, record)
        cells = [observe(run, plan, id, question.what, question.target) for id in (other.id, plan.baseline)]
        return Look(run=run, environment=environment, good=good, cells=cells[0], good_cells=cells[1])

    def ask_ends(self) -> None:
        """Both ends, until they are shown to differ, or all looks are spent."""
        question, begun = self.question, (now_utc(), time.monotonic())
        for number in range(LOOKS):
            look = self.look(question.bad, number)
            differ = differing(look.cells, look.good_cells, question.what, question.min_effect)
            if differ:
                break
        if question.what == "latency" and not any(cell.ratio for cell in look.cells):
            raise InfrastructureError(
                f"no time of {question.target} at both ends: {look.cells[0].message}",
                "ask for its correctness: --what correctness",
            )
        self.record(question.good, "good", planning.GOOD, look, number + 1, begun)
        self.record(question.bad, "bad" if differ else "good", 1 if differ else planning.GOOD, look, number + 1, begun)

    def ask(self, version: str) -> None:
        begun = (now_utc(), time.monotonic())
        labels = self.labels()
        neighbours = planning.neighbours(labels, self.versions.index(version))
        label = None
        try:
            for number in range(self.seen[self.question.bad].looks - 1, LOOKS):  # fewer did not tell the ends apart
                look = self.look(version, number)
                label = self._label(look, neighbours, last=number == LOOKS - 1)
                if label is not None:
                    break
        except CannotTell as problem:
            self.skip(version, problem, begun)
            return
        bad = labels[-1]
        verdict: Verdict = "undecided"
        if label is not None:
            verdict = "good" if label == planning.GOOD else "bad" if label == bad else "neither"
        self.record(version, verdict, label, look, number + 1, begun)

    def _label(self, look: Look, neighbours: tuple[int, int], *, last: bool) -> int | None:
        question = self.question
        if question.what == "latency" and not any(cell.ratio for cell in look.cells):
            raise CannotTell(f"no time: {look.cells[0].message}", look.environment)
        records = [self.seen[question.bad], *self._in_order()]  # the ends were told apart: they speak for their labels
        first = {record.label: record.cells for record in reversed(records) if record.label is not None}
        first[planning.GOOD] = look.good_cells  # on the same inputs, in the same blocks
        return judge(look.cells, first, neighbours, question.what, question.min_effect, last=last)

    def _in_order(self) -> list[VersionRecord]:
        return [self.seen[version] for version in self.versions if version in self.seen]

    # -- from the first version to the answer -------------------------------------------------------------------

    def run(self) -> BisectionRecord:
        if self.question.bad not in self.seen or self.question.good not in self.seen:
            self._room(self.question.good, self.question.bad)
            self.ask_ends()
        while True:
            self.sweep()
            index = planning.next_version(self.labels(), every=self.question.every)
            if index is None:
                break
            version = self.versions[index]
            self._room(version)
            named = environment_of(self.matrix, version, self.question.good) in self.matrix.environments
            if named or self.asked.keep or self.prepared.choice.executor != "venv":
                self.ask(version)
            else:
                with wheels_apart(cache_folder()):
                    self.ask(version)
        record = conclude(self.question, self._in_order(), self.labels())
        save_record(self.folder / "bisection.json", record)
        self.sweep(ends=True)
        return record

    def _room(self, *versions: str) -> None:
        here = self.prepared.choice.executor == "venv"  # an engine's disk may be another machine's
        new = [
            v for v in versions if environment_of(self.matrix, v, self.question.good) not in self.matrix.environments
        ]
        if here and new:
            refuse_without_room(cache_folder())

    def sweep(self, *, ends: bool = False) -> None:
        """Remove environments that are needed no more, also those of a session that was killed."""
        if self.asked.keep:
            return
        named = named_environments(self.matrix)
        for record in self._in_order():
            if record.environment in named or (record.version == self.question.good and not ends):
                continue
            if remove_environment(self.prepared.choice, cache_folder(), record, self.question.created_utc):
                print(f"removed {record.environment}: its answer is recorded (--keep keeps it)", flush=True)
        remove_own_wheels(cache_folder())
