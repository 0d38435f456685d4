"""A bisection: a binary search over ordinary runs.

Each look at a version is an ordinary run of the good version and this one, restricted to what is asked about. Runs are
stored and resumed as all runs are, so a bisection that was killed starts again, and finds again what was finished.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.config.environments import NOUNS, PYPI, channel
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import pin_package
from harness.config.plan import PlannedEnvironment
from harness.config.wheel_files import supported_tags
from harness.errors import InfrastructureError, InputError
from harness.executors.remove import remove_environment
from harness.run.folders import held, now_utc
from harness.run.prepare import Prepared, RunOptions, folder_files, make_plan
from harness.schema.bisection_records import Aspect, BisectionRecord, Probe, ProbeVerdict, Question, Release
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.storage import load_record, save_record
from harness.search.bisect import order
from harness.search.bisect.compare import LOOKS, REPLICATES, TRIAL_FACTORS, find_differing, is_clear
from harness.search.bisect.environments import name_environments, own_wheels
from harness.search.bisect.observe import observe
from harness.search.bisect.probes import Probes
from harness.search.bisect.releases import parse_ends, releases_between
from harness.search.bisect.subject import BisectSubject, choose_target, derive_matrix, environment_at, held_environment
from harness.tools import cache_folder, lock_file
from harness.worker import protocol
from harness.workflow.matrix import run_matrix


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
        while (version := self.probes.next_version()) is not None:
            is_large = self.prepared.choice.executor == "venv" and not self.subject.component
            is_new = environment_at(self.matrix, self.subject, version) not in self.matrix.environments
            with own_wheels(cache_folder()) if is_large and is_new and not self.keep else nullcontext():
                self._ask_between(version)
                self._remove()
        record = self.probes.conclude()
        self._remove(ends=True)
        return record

    def _ask_ends(self) -> None:
        """Look at both ends, until they are shown to differ, or all looks are spent."""
        question = self.question
        for number in range(LOOKS):
            good, bad = self._look(question.bad, number)
            differ = bool(find_differing(bad.cells, good.cells))
            if differ:
                break
        if question.what is Aspect.LATENCY and not any(cell.ratio for cell in bad.cells):
            problem = f"no time of {question.target} at both ends: see reports/runs/{bad.run}"
            raise InfrastructureError(problem, "ask for its correctness: --what correctness")
        self._tell(good, ProbeVerdict.GOOD)
        self._tell(bad, ProbeVerdict.BAD if differ else ProbeVerdict.GOOD)

    def _ask_between(self, version: str) -> None:
        for number in range(self.probes.bad.looks - 1, LOOKS):  # fewer did not tell the ends apart
            good, probe = self._look(version, number)
            if reason := probe.reason or self._find_no_answer(probe):
                self._tell(replace(probe, reason=reason), ProbeVerdict.SKIPPED)
                return
            if good.looks > self.probes.good.looks:  # all later comparisons have its further trials too
                self.probes.by_version[good.version] = replace(good, verdict=ProbeVerdict.GOOD)
            left, right = self.probes.find_neighbours(version)
            if is_clear(probe.cells, left.cells, right.cells, last=number == LOOKS - 1):
                self._tell(probe, self.probes.find_verdict(probe.cells, left, right))
                return
        self._tell(probe, ProbeVerdict.INCONCLUSIVE)

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

    def _look(self, version: str, number: int) -> tuple[Probe, Probe]:
        """Run the good version beside another, and read both from the records. The other has a `reason` where it
        cannot be had here; where it is an end, InputError or InfrastructureError."""
        question = self.question
        factor, replicates, rounds = TRIAL_FACTORS[number], 1, 0
        if question.what is Aspect.LATENCY:
            factor, replicates, rounds = 1, REPLICATES[-1], REPLICATES[number]
        derived = derive_matrix(self.matrix, self.subject, (question.good, version), factor, replicates)
        options = replace(self.options, derived=derived, explain=False, blocks=rounds)
        try:
            self._pin(derived)
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
            is_ok = environment.status == protocol.OK
            if not is_ok:
                self._refuse_end(name, environment)
            probe = Probe(
                version=name,
                reason="" if is_ok else environment.message,
                run=run.folder.name,
                environment=id,
                observed=environment.observed,
                looks=number + 1,
                cells=observe(run, id, question) if is_ok else [],
            )
            probes.append(probe)
        return probes[0], probes[1]

    def _pin(self, derived: Matrix) -> None:
        """Of a package: write pin files that differ in it alone, so that nothing else can be what differs."""
        package = self.subject.component
        if not package:
            return
        same = PlannedEnvironment(spec=held_environment(self.matrix, self.subject.held), index=self.index)
        for spec in derived.environments:
            if spec not in self.matrix.environments:
                planned = PlannedEnvironment(spec=spec, index=self.index)
                pin_package(self.options.root, same, planned, self.matrix, package)

    def _refuse_end(self, version: str, environment: EnvironmentRecord) -> None:
        """Raise where an end cannot be had, or nothing at all: the index does not answer."""
        problem = self.options.machine.probe_index(self.index)
        if problem or version in (self.question.good, self.question.bad):
            raise InfrastructureError(
                f"{environment.id}: {problem or environment.message}",
                "once it is mended, the same command then goes on from here",
            )

    def _remove(self, *, ends: bool = False) -> None:
        """Remove the environments that are needed no more, unless matrix.yaml names them or they were there before."""
        keep = name_environments(self.matrix) | (set() if ends else {self.probes.good.environment})
        for id in [id for id in self.made if id not in keep] if not self.keep else []:
            key, since_utc = self.made.pop(id)
            if remove_environment(self.prepared.choice, cache_folder(), id, key, since_utc):
                print(f"removed {id}: its answer is recorded (--keep keeps it)", flush=True)


def _list_releases(subject: BisectSubject, options: RunOptions, prepared: Prepared) -> tuple[str, list[Release]]:
    """Return the index and its releases from end to end. InputError where an end cannot be installed here."""
    base = prepared.plan.environment(prepared.plan.baseline)
    package, index = (subject.component, PYPI) if subject.component else ("torch", base.index)
    tags, files = supported_tags(base.spec.python), options.machine.fetch_listing(index, package)
    releases = releases_between(files, subject.good, subject.bad, base.spec, index, tags, package)
    for end in (releases[0], releases[-1]):
        if end.skipped:
            raise InputError(f"{package} {end.version}: {end.skipped} on {index}", "choose another `python` for it")
    return index, releases


def _make_question(subject: BisectSubject, options: RunOptions, prepared: Prepared, *, every: bool) -> Question:
    plan = prepared.plan
    index, releases = _list_releases(subject, options, prepared)
    digest = protocol.digest([plan.digest, subject.what, subject.target, every, vars(plan.thresholds)])
    names = [subject.component, subject.good, subject.bad, subject.what.value, subject.target, digest[:12]]
    return Question(
        id="-".join(filter(None, names)),
        created_utc=now_utc(),
        command=list(options.command),
        good=releases[0].version,
        bad=releases[-1].version,
        component=subject.component,
        what=subject.what,
        target=subject.target,
        executor=plan.facts.executor,
        index=index,
        fallbacks=list(plan.fallbacks),
        releases=releases,
        every=every,
    )


def print_question(question: Question) -> None:
    usable = [release.version for release in question.releases if not release.skipped]
    print(f"{question.what.value} of {question.target} from {question.good} to {question.bad}")
    print(f"{len(usable)} {NOUNS[channel(question.good)]}: {' '.join(usable)}")
    print(f"where one step explains it, at most {order.most_environments(len(usable))} environments are needed")
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
    ends = derive_matrix(matrix, subject, (subject.good, subject.bad), 1, 1)
    prepared = make_plan(replace(options, derived=ends), subject.selection, write_pins=False)
    question = _make_question(subject, options, prepared, every=every)
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
