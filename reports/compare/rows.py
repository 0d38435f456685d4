"""Every planned cell, and every reference x workload x device, against the same in the baseline environment. Pure.

No gaps: what has no record is a row whose status is `not_run`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from harness.stats import decide
from harness.worker import protocol
from reports import model
from reports.compare import correctness, latency
from reports.compare.latency import Rows
from reports.load.evidence import Evidence
from reports.model import Comparison, Correctness, Latency, LatencySide
from reports.render.commands import eval_command, matrix_command, place_options

KERNEL, REFERENCE = "kernel", "reference"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What one row compares. `kernels` hold the records: the kernel itself, or those that a reference ran with."""

    kind: str
    target: str
    environment: str
    workload: str
    device: str
    kernels: tuple[str, ...]

    @property
    def timed_as(self) -> str:
        return protocol.KERNEL if self.kind == KERNEL else self.target

    @property
    def id(self) -> str:
        """Readable, and unique even where a name holds what a URL fragment cannot."""
        name = self.target if self.kind == KERNEL else f"ref:{self.target}"
        plain = "/".join((self.environment, name, self.workload, self.device))
        safe = re.sub(r"[^A-Za-z0-9._:/+-]", "_", plain)
        return safe if safe == plain else f"{safe}-{sha256(plain.encode()).hexdigest()[:8]}"


def subjects(evidence: Evidence) -> Iterator[Subject]:
    """Kernels in plan order, then references. The baseline's own cells are the other half of every comparison; they
    stand for themselves only where no other environment was planned."""
    run = evidence.run
    others = [cell for cell in run.cells if cell.environment != run.baseline]
    cells = others or run.cells
    references: dict[tuple[str, str, str, str], list[str]] = {}
    for cell in cells:
        yield Subject(
            kind=KERNEL,
            target=cell.kernel,
            environment=cell.environment,
            workload=cell.workload,
            device=cell.device,
            kernels=(cell.kernel,),
        )
        info = evidence.kernel(cell.kernel)
        for reference in info.references_on(cell.device) if info else []:
            key = (cell.environment, reference, cell.workload, cell.device)
            references.setdefault(key, []).append(cell.kernel)
    for (environment, reference, workload, device), kernels in references.items():
        yield Subject(
            kind=REFERENCE,
            target=reference,
            environment=environment,
            workload=workload,
            device=device,
            kernels=tuple(kernels),
        )


def _validated_with(evidence: Evidence, subject: Subject) -> str:
    def has(environment: str, kernel: str) -> bool:
        record = evidence.validation(environment, kernel, subject.workload, subject.device)
        return record is not None and any(
            correctness.target_of(recipe, subject.timed_as) is not None for recipe in record.recipes
        )

    return _first(subject, evidence.run.baseline, has)


def _timed_with(rows: Rows, subject: Subject, baseline: str) -> str:
    def has(environment: str, kernel: str) -> bool:
        found = rows.of(environment, kernel, subject.device, subject.workload, subject.timed_as)
        return any(row.status == "ok" for row in found)

    return _first(subject, baseline, has)


def _first(subject: Subject, baseline: str, has: Callable[[str, str], bool]) -> str:
    """The first kernel with evidence on both sides, else on either, else the first."""
    for sides in (all, any):
        for kernel in subject.kernels:
            if sides(has(environment, kernel) for environment in (baseline, subject.environment)):
                return kernel
    return subject.kernels[0]


def is_control(evidence: Evidence, environment: str) -> bool:
    """An A/A control: the baseline's stack a second time, where every change called is a false alarm."""
    return environment != evidence.run.baseline and same_stack(evidence, evidence.run.baseline, environment)


def same_stack(evidence: Evidence, left: str, right: str) -> bool:
    """Whether two environments are replicas of one: the same versions from the same pins."""
    one, two = (evidence.environments.get(name) for name in (left, right))
    if one is None or two is None:
        return False
    told = [(each.torch, each.cuda, each.python, each.index, each.pins_sha256, each.variables) for each in (one, two)]
    return told[0] == told[1]


def _not_comparable(evidence: Evidence) -> str:
    if evidence.run.mode == "eval":
        return "timed alone: not comparable with a baseline that was not timed in the same blocks"
    if all(cell.environment == evidence.run.baseline for cell in evidence.run.cells):
        return "the baseline is the only environment of this run: there is nothing to compare with"
    return ""


def compare(evidence: Evidence, rows: Rows) -> list[Comparison]:
    """Comparisons without causes, which attribution adds. `rows` are the evidence's launches, grouped."""
    run = evidence.run
    found = list(subjects(evidence))
    verdicts = _correctness(evidence, found)
    timed = _latency(evidence, rows, found, verdicts)
    results = []
    place = place_options(run.command)
    for subject, judged, (measured, hot) in zip(found, verdicts, timed, strict=True):
        kernel = subject.kernels[0] if subject.kind == KERNEL else (measured.this.measured_with or subject.kernels[0])
        stack = evidence.environments.get(subject.environment)
        torch = subject.environment if stack is None or stack.executor == "host" else stack.torch
        results.append(
            Comparison(
                id=subject.id,
                kind=subject.kind,
                target=subject.target,
                workload=subject.workload,
                device=subject.device,
                environment=subject.environment,
                baseline=run.baseline,
                control=is_control(evidence, subject.environment),
                alone=subject.environment == run.baseline,
                correctness=judged,
                latency=measured,
                hot=hot,
                command=matrix_command(place, kernel, subject.workload, subject.device),
                eval_command=eval_command(place, torch, kernel, subject.workload, subject.device),
            )
        )
    return results


def _latency(
    evidence: Evidence, rows: Rows, found: list[Subject], verdicts: list[Correctness]
) -> list[tuple[Latency, Latency | None]]:
    """Cold and, on a GPU, hot: judged together, so that one false-discovery rate holds over all that is shown."""
    baseline = evidence.run.baseline
    pairs: dict[tuple[int, str], tuple[LatencySide, LatencySide, float]] = {}
    for index, (subject, judged) in enumerate(zip(found, verdicts, strict=True)):
        kernel = _timed_with(rows, subject, baseline)
        for mode in (model.COLD, model.HOT) if subject.device == "cuda" else (model.COLD,):
            base, this = (
                latency.side(
                    evidence, rows, environment, kernel, subject.workload, subject.device, subject.timed_as, wrong, mode
                )
                for environment, wrong in (
                    (baseline, judged.baseline.status == "wrong"),
                    (subject.environment, judged.this.status == "wrong"),
                )
            )
            pairs[index, mode] = (base, this, evidence.min_effect(subject.device))
    decided = latency.decide_all(
        list(pairs.values()),
        evidence.confidence,
        evidence.false_discovery_rate,
        looks=evidence.looks,
        not_comparable=_not_comparable(evidence),
    )
    timed = dict(zip(pairs, decided, strict=True))
    return [(timed[index, model.COLD], timed.get((index, model.HOT))) for index in range(len(found))]


def _correctness(evidence: Evidence, found: list[Subject]) -> list[Correctness]:
    sides = []
    baseline = evidence.run.baseline
    for subject in found:
        kernel = _validated_with(evidence, subject)
        base, this = (
            correctness.side(evidence, environment, kernel, subject.workload, subject.device, subject.timed_as)
            for environment in (baseline, subject.environment)
        )
        records = [
            evidence.validation(environment, kernel, subject.workload, subject.device)
            for environment in (baseline, subject.environment)
        ]
        bits = correctness.compare_bits(records[0], records[1], subject.timed_as)
        errors, p = None, correctness.fisher_p(base, this)
        if base.status == this.status == "ok":
            errors, p = correctness.compare_errors(records[0], records[1], subject.timed_as)
        sides.append((base, this, bits, errors, p))
    q_values = decide.adjust([p for *_, p in sides])
    level = evidence.false_discovery_rate
    return [
        correctness.verdict(base, this, bits, errors, p, q, level)
        for (base, this, bits, errors, p), q in zip(sides, q_values, strict=True)
    ]
