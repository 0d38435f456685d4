"""A bisection: a binary search over ordinary runs.

Each look at a version is an ordinary run of the good version and this one, restricted to what is asked about. Runs are
stored and resumed as all runs are, so a bisection that was killed starts again, and finds again what was finished.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.config.environments import NOUNS, channel
from harness.config.matrix import Matrix, load_matrix
from harness.config.wheel_files import supported_tags
from harness.errors import InfrastructureError, InputError
from harness.executors.remove import remove_environment
from harness.run.folders import held, now_utc
from harness.run.prepare import Prepared, RunOptions, folder_files, make_plan
from harness.schema.bisection_records import Aspect, BisectionRecord, Probe, ProbeVerdict, Question
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.storage import load_record, save_record
from harness.search.bisect.observe import observe
from harness.search.bisect.releases import parse_ends, releases_between
from harness.search.bisect.steps import Probes, find_differing, most_environments
from harness.search.bisect.subject import BisectSubject, choose_target, derive_matrix
from harness.tools import cache_folder, lock_file
from harness.worker import protocol
from harness.workflow.matrix import run_matrix

WHEELS = "bisecting-wheels"


@dataclass(kw_only=True)
class Bisection:
    """One bisection. `made`: the environments that it looked in, with their keys, and since when it uses them."""

    subject: BisectSubject
    options: RunOptions
    matrix: Matrix
    prepared: Prepared
    probes: Probes
    keep: bool = False
    made: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def question(self) -> Question:
        return self.probes.question

    @property
    def index(self) -> str:
        plan = self.prepared.plan
        return plan.environment(plan.baseline).index

    def run(self) -> BisectionRecord:
        """Ask both ends, then the version in the middle of each step, until every step is found."""
        self._ask_ends()
        is_large = self.prepared.choice.executor == "venv" and not self.keep
        with own_wheels(cache_folder()) if is_large else nullcontext():
            while (version := self.probes.next_version()) is not None:
                self._ask_between(version)
                self._remove()
        record = self.probes.conclude()
        self._remove(ends=True)
        return record

    def _ask_ends(self) -> None:
        good, bad = self._look(self.question.bad)
        if self.question.what is Aspect.LATENCY and not any(cell.ratio for cell in bad.cells):
            problem = f"no time of {self.question.target} at both ends: see reports/runs/{bad.run}"
            raise InfrastructureError(problem, "ask for its correctness: --what correctness")
        self._tell(good, ProbeVerdict.GOOD)
        self._tell(bad, ProbeVerdict.BAD if find_differing(bad.cells, good.cells) else ProbeVerdict.GOOD)

    def _ask_between(self, version: str) -> None:
        _, probe = self._look(version)
        if reason := probe.reason or self._find_no_answer(probe):
            self._tell(replace(probe, reason=reason), ProbeVerdict.SKIPPED)
        else:
            self._tell(probe, self.probes.find_verdict(version, probe.cells))

    def _find_no_answer(self, probe: Probe) -> str:
        """Return why a version has no answer to the question: no time, or no build where both ends have one."""
        if self.question.what is Aspect.LATENCY:
            return "" if any(cell.ratio for cell in probe.cells) else f"no time: {probe.cells[0].message}"
        ends = [*self.probes.good.cells, *self.probes.bad.cells]
        failed = next((cell for cell in probe.cells if cell.status == protocol.BUILD_FAILED), None)
        if failed is None or any(cell.status == protocol.BUILD_FAILED for cell in ends):
            return ""
        return f"the build fails: {failed.message}"

    def _tell(self, probe: Probe, verdict: ProbeVerdict) -> None:
        self.probes.by_version[probe.version] = replace(probe, verdict=verdict)
        print(f"{probe.version}: {verdict.value}{probe.reason and f': {probe.reason}'}", flush=True)

    def _look(self, version: str) -> tuple[Probe, Probe]:
        """Run the good version beside another, and read both from the records. The other has a `reason` where it
        cannot be had here; where it is an end, InputError or InfrastructureError."""
        question = self.question
        is_timed = question.what is Aspect.LATENCY
        derived = derive_matrix(self.matrix, self.subject, (question.good, version))
        try:
            options = replace(self.options, derived=derived, explain=False, blocks=None if is_timed else 0)
            run, _ = run_matrix(options, self.subject.selection)
        except InputError as error:
            if version == question.bad:
                raise
            return Probe(version=question.good), Probe(version=version, reason=error.message)
        record, found = run.load(), {environment.id: environment for environment in run.environments()}
        probes = []
        for name, id in zip((question.good, version), record.environments, strict=True):
            environment = found[id]
            self.made.setdefault(id, (environment.key, record.created_utc))
            probe = Probe(version=name, run=run.folder.name, environment=id, observed=environment.observed)
            if environment.status == protocol.OK:
                probe = replace(probe, cells=observe(run, id, question))
            else:
                self._refuse_end(name, environment)
                probe = replace(probe, reason=environment.message)
            probes.append(probe)
        return probes[0], probes[1]

    def _refuse_end(self, version: str, environment: EnvironmentRecord) -> None:
        """Raise where an end cannot be had, or nothing at all: the index does not answer."""
        problem = self.options.machine.probe_index(self.index)
        if problem or version in (self.question.good, self.question.bad):
            remedy = "once it is mended, the same command then goes on from here"
            raise InfrastructureError(f"{environment.id}: {problem or environment.message}", remedy)

    def _remove(self, *, ends: bool = False) -> None:
        """Remove the environments that are needed no more, unless matrix.yaml names them or they were there before."""
        if self.keep:
            return
        needed = {spec.id(index) for spec in self.matrix.pinned_environments for index in spec.indexes}
        needed |= set() if ends else {self.probes.good.environment}
        for id in [id for id in self.made if id not in needed]:
            key, since_utc = self.made.pop(id)
            if remove_environment(self.prepared.choice, cache_folder(), id, key, since_utc):
                print(f"removed {id}: its answer is recorded (--keep keeps it)", flush=True)


@contextmanager
def own_wheels(cache: Path) -> Iterator[None]:
    """Let uv keep what it unpacks in a folder of its own, on the same disk, and remove it. In uv's usual cache the
    wheels of a version would stay when its environment is removed, and removing that would free nothing."""
    before = os.environ.get("UV_CACHE_DIR")
    os.environ["UV_CACHE_DIR"] = str(cache / WHEELS)
    try:
        yield
    finally:
        del os.environ["UV_CACHE_DIR"]
        if before is not None:
            os.environ["UV_CACHE_DIR"] = before
        shutil.rmtree(cache / WHEELS, ignore_errors=True)


def make_question(subject: BisectSubject, options: RunOptions, prepared: Prepared, *, every: bool) -> Question:
    """Return the question, with its releases. InputError where an end cannot be installed here."""
    plan = prepared.plan
    base = plan.environment(plan.baseline)
    tags, files = supported_tags(base.spec.python), options.machine.fetch_listing(base.index, "torch")
    releases = releases_between(files, subject.good, subject.bad, base.spec, base.index, tags)
    for end in (releases[0], releases[-1]):
        if end.skipped:
            raise InputError(f"torch {end.version}: {end.skipped} on {base.index}", "choose another `python` for it")
    digest = protocol.digest([plan.digest, subject.what, subject.target, every, vars(plan.thresholds)])
    names = [subject.good, subject.bad, subject.what.value, subject.target, digest[:12]]
    return Question(
        id="-".join(names),
        created_utc=now_utc(),
        command=list(options.command),
        good=releases[0].version,
        bad=releases[-1].version,
        what=subject.what,
        target=subject.target,
        executor=plan.facts.executor,
        index=base.index,
        fallbacks=list(plan.fallbacks),
        releases=releases,
        every=every,
    )


def print_question(question: Question) -> None:
    """Print the releases, and what the search will need."""
    usable = [release.version for release in question.releases if not release.skipped]
    print(f"{question.what.value} of {question.target} from {question.good} to {question.bad}")
    print(f"{len(usable)} {NOUNS[channel(question.good)]}: {' '.join(usable)}")
    print(f"where one step explains it, at most {most_environments(len(usable))} environments are needed")
    for release in question.releases:
        if release.skipped:
            print(f"skipped: {release.version}: {release.skipped}")


def run_bisection(
    subject: BisectSubject, options: RunOptions, *, every: bool = False, keep: bool = False, list_only: bool = False
) -> tuple[Path, BisectionRecord] | None:
    """Bisect, or go on with what was begun. The folder of the record, and the record; None with `list_only`."""
    parse_ends(subject.good, subject.bad)
    matrix, _ = load_matrix(options.matrix_path, options.base_image)
    subject = choose_target(subject, matrix, folder_files(matrix, options.root))
    ends = derive_matrix(matrix, subject, (subject.good, subject.bad))
    prepared = make_plan(replace(options, derived=ends), subject.selection, write_pins=False)
    question = make_question(subject, options, prepared, every=every)
    print_question(question)
    if list_only:
        return None
    path = options.root / "reports" / "bisections" / question.id / "bisection.json"
    lock = lock_file(cache_folder(), f"bisection-{protocol.digest(str(path))[:16]}")
    with held(lock, "another process is working on this very bisection; waiting for it"):
        if path.exists():
            print("nothing changed since this bisection was finished: its record is reported again")
            return path.parent, load_record(path, BisectionRecord)
        search = Bisection(
            subject=subject, options=options, matrix=matrix, prepared=prepared, probes=Probes(question), keep=keep
        )
        record = search.run()
        save_record(path, record)
    return path.parent, record
