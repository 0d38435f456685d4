"""Everything a report says, as one value: the page, summary.json, summary.md and junit.xml all render this. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from harness import errors
from harness.inside import protocol
from harness.records import Cell, Outcome
from reports import model
from reports.attribution import attribute
from reports.commands import matrix_command, place_options
from reports.compare import KERNEL, compare, is_control
from reports.correctness import FAILED
from reports.differences import (
    BuildDifference,
    Confounder,
    Item,
    build_differences,
    confounders,
    environment_items,
)
from reports.evidence import Evidence
from reports.fastp import fast_p
from reports.latency import STOPPED, Rows, group_launches
from reports.model import Comparison, FastP


@dataclass(frozen=True, kw_only=True)
class Version:
    """An environment as asked for and as it said of itself from inside (None: it could not be asked)."""

    id: str
    baseline: bool
    control: bool
    asked: str
    torch: str | None
    cuda_build: str | None
    python: str | None
    status: str
    message: str


@dataclass(frozen=True, kw_only=True)
class CellState:
    """One planned cell, the baseline's included."""

    id: str
    environment: str
    kernel: str
    workload: str
    device: str
    status: str
    message: str
    launches: int
    median_us: float | None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Something that was attempted and did not work in each of `places`, with the end of what it printed."""

    where: str
    places: list[str]
    status: str
    message: str
    log_excerpt: str


@dataclass(frozen=True, kw_only=True)
class Report:
    evidence: Evidence
    rows: list[Comparison]
    moved: list[Comparison]
    never_right: list[Comparison]
    versions: list[Version]
    confounders: list[Confounder]
    cells: list[CellState]
    fast_p: list[FastP]
    environment_items: list[Item]
    builds: list[BuildDifference]
    failures: list[Failure]
    correctness_counts: dict[str, int]
    latency_counts: dict[str, int]
    headline: str
    matrix_command: str


def build_report(evidence: Evidence) -> Report:
    launches = group_launches(evidence.launches)
    rows = attribute(evidence, compare(evidence, launches))
    versions = [_version(evidence, name) for name in evidence.run.environments]
    cells = _cells(evidence, launches)
    moved = sorted((row for row in rows if has_moved(row)), key=significance)
    return Report(
        evidence=evidence,
        rows=rows,
        moved=moved,
        never_right=never_right(rows),
        versions=versions,
        confounders=confounders(evidence),
        cells=cells,
        fast_p=fast_p(evidence, launches),
        environment_items=environment_items(evidence),
        builds=build_differences(evidence),
        failures=failures(evidence),
        correctness_counts=counts(row.correctness.verdict for row in rows),
        latency_counts=counts(row.latency.verdict for row in rows),
        headline=headline(versions, rows),
        matrix_command=matrix_command(place_options(evidence.run.command)),
    )


def counts(verdicts: Iterable[str]) -> dict[str, int]:
    found = Counter(verdicts)
    return {verdict: found[verdict] for verdict in model.VERDICTS if found[verdict]}


def correctness_moved(row: Comparison) -> bool:
    judged = row.correctness
    return judged.verdict in model.MOVED and not (judged.verdict == model.BROKEN and judged.baseline.status in FAILED)


def latency_moved(row: Comparison) -> bool:
    """What has no times here, and for its own failure had none in the baseline, did not move."""
    timed = row.latency
    return timed.verdict in model.MOVED and not (timed.verdict == model.BROKEN and timed.baseline.status in STOPPED)


def never_right(rows: list[Comparison]) -> list[Comparison]:
    """Kernels' rows whose target and workload are wrong or broken in every version, the baseline included."""
    found: dict[tuple[str, str, str], list[Comparison]] = {}
    for row in rows:
        if row.kind == KERNEL and not row.alone and not row.control:
            found.setdefault((row.target, row.workload, row.device), []).append(row)
    return [
        group[0]
        for group in found.values()
        if all(
            row.correctness.verdict == model.FAILING
            or {row.correctness.baseline.status, row.correctness.this.status} <= STOPPED
            for row in group
        )
    ]


def has_moved(row: Comparison) -> bool:
    """A verdict that moved, or a reference that moved under a kernel that did not."""
    if row.alone:
        return row.correctness.verdict in (model.BROKEN, model.FAILING)
    if correctness_moved(row) or latency_moved(row):
        return True
    return any(
        finding.about == "correctness" and finding.cause in ("reference_moved", "kernel_output_moved")
        for finding in row.findings
    )


def significance(row: Comparison) -> tuple[float, ...]:
    """Sort key, most significant first: worse outputs, then other outputs that moved, kernels before references, slower
    before faster, the smaller q, the larger change."""
    worse_output = row.correctness.verdict in model.WORSE and (row.alone or correctness_moved(row))
    worse_time = row.latency.verdict in model.WORSE and (row.alone or latency_moved(row))
    q = row.latency.q_value if row.latency.q_value is not None else 1.0
    change = abs(math.log(row.latency.ratio)) if row.latency.ratio else 0.0
    moved = correctness_moved(row)
    return (not worse_output, not moved, row.kind != KERNEL, not worse_time, q, -change)


def _version(evidence: Evidence, name: str) -> Version:
    record = evidence.environments.get(name)
    seen = record.observed if record else None
    return Version(
        id=name,
        baseline=name == evidence.run.baseline,
        control=is_control(evidence, name),
        asked=f"PyTorch {record.torch}, CUDA {record.cuda}, Python {record.python}" if record else "not recorded",
        torch=seen.torch if seen else None,
        cuda_build=seen.torch_cuda if seen else None,
        python=seen.python if seen else None,
        status=record.status if record else "not_run",
        message=record.message if record else "the run holds no record of this environment",
    )


def _cells(evidence: Evidence, rows: Rows) -> list[CellState]:
    found = []
    for cell in evidence.run.cells:
        outcome = _outcome(evidence, cell)
        times = [
            row[4]
            for row in rows.of(cell.environment, cell.kernel, cell.device, cell.workload, "kernel")
            if row[1] == "ok"
        ]
        found.append(
            CellState(
                id=cell.id,
                environment=cell.environment,
                kernel=cell.kernel,
                workload=cell.workload,
                device=cell.device,
                status=outcome.status,
                message=outcome.message,
                launches=len(times),
                median_us=median(times) if times else None,
            )
        )
    return found


def _outcome(evidence: Evidence, cell: Cell) -> Outcome:
    record = evidence.validations.get(cell.id)
    if record is not None and record.status in ("ok", "wrong"):
        return record
    blocked = evidence.blocked(cell.environment, cell.kernel, cell.device)
    if blocked is not None:
        return blocked
    return record or Outcome(status="not_run", message="the run holds no validation record of it")


def failures(evidence: Evidence) -> list[Failure]:
    """Environments, builds, validations and launches that did not work, first causes before what followed."""
    found: dict[tuple[str, str, str], Failure] = {}

    def add(what: str, place: str, outcome: Outcome) -> None:
        """One entry for all places, inputs and environments, where the same thing failed with the same message."""
        if outcome.status not in ("ok", "not_run", "wrong") or (outcome.status == "wrong" and outcome.message):
            key = (what, outcome.status, outcome.message)
            entry = found.setdefault(
                key,
                Failure(
                    where=what,
                    places=[],
                    status=outcome.status,
                    message=outcome.message,
                    log_excerpt=outcome.log_excerpt,
                ),
            )
            if place not in entry.places:
                entry.places.append(place)
            if outcome.log_excerpt and not entry.log_excerpt:
                found[key] = replace(entry, log_excerpt=outcome.log_excerpt)

    for environment in evidence.environments.values():
        add(environment.id, environment.id, environment)
    for build in evidence.builds.values():
        add(f"build of {build.kernel} ({build.device})", f"build in {build.environment}", build)
    for cell_id, record in evidence.validations.items():
        on = f"on {record.workload} ({record.device})"
        add(f"{record.kernel} {on}", cell_id, record)
        for recipe in record.recipes:
            for target in recipe.targets:
                name = record.kernel if target.target == protocol.KERNEL else target.target
                add(f"{name} {on}", f"{cell_id}, {target.target} on {recipe.recipe} inputs", target)
    for launches in evidence.launch_records.values():
        for launch in launches:
            where = f"{launch.environment}/{launch.kernel}/{launch.device}"
            add(f"launches of {launch.kernel} ({launch.device})", f"launch {launch.index} of {where}", launch)
            for timing in launch.timings:
                name = launch.kernel if timing.target == protocol.KERNEL else timing.target
                add(
                    f"{name} on {timing.workload} ({launch.device})",
                    f"timing of {timing.target} on {timing.workload} in {where}",
                    timing,
                )
    return list(found.values())


def name_of(version: Version) -> str:
    return f"PyTorch {version.torch}" if version.torch else f"{version.asked.partition(',')[0]} (not observed)"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def headline(versions: list[Version], rows: list[Comparison]) -> str:
    """The verdict in one sentence: the worst that is certain, then what could not be told."""
    base = next((version for version in versions if version.baseline), None)
    others = [version for version in versions if not version.baseline and not version.control]
    controls = [row for row in rows if row.control]
    control = f"A/A control: {sum(map(has_moved, controls))} of {len(controls)} moved" if controls else ""
    if base is not None and control and not others:
        return f"{name_of(base)} against itself: {control}."
    rows = [row for row in rows if not row.control]
    if base is None or not others:
        names = ", ".join(name_of(version) for version in versions)
        wrong = sum(row.correctness.verdict in (model.FAILING, model.BROKEN) for row in rows)
        return (
            f"{names} alone: {_number(len(rows), 'target')} measured, {wrong} of them wrong or broken, "
            "and nothing to compare with."
        )
    names = " and ".join(name_of(version).removeprefix("PyTorch ") for version in others)
    where = f"From {name_of(base)} to {names}: "
    dead = [version for version in versions if version.status == "broken"]
    if dead:
        names = " and ".join(version.id for version in dead)
        return f"{where}{names} could not be measured, because the environment is broken."
    kernels = [row for row in rows if row.kind == KERNEL]
    parts = [_part(kernels, "kernel"), _part([row for row in rows if row.kind != KERNEL], "reference")]
    drifted = sum(any(finding.cause == "reference_moved" for finding in row.findings) for row in kernels)
    if drifted:
        parts.insert(1, f"{drifted} unmoved lost agreement with a reference that moved")
    passing = sum(row.correctness.verdict == model.PASS for row in kernels)
    if kernels and passing == len(kernels):
        # The first question of whoever opens the page, whatever the references did.
        parts.insert(0, f"{'all ' if passing > 1 else ''}{_number(passing, 'kernel output')} correct as before")
    elif not any(parts):
        parts.append(f"nothing moved beyond doubt in {_number(len(rows), 'comparison')}")
    for aspect in ("correctness", "latency"):
        undecided = sum(getattr(row, aspect).verdict == model.UNDECIDED for row in rows)
        parts += [f"{aspect} undecided in {undecided} of {_number(len(rows), 'comparison')}"] if undecided else []
    return where + "; ".join(part for part in [*parts, control] if part) + "."


# Short enough for one sentence; the badges below it use the words of the verdicts.
PHRASES = {
    model.BROKEN: "broken",
    model.REGRESSED: "newly wrong",
    model.NO_LONGER_SUPPORTED: "no longer supported",
    "still_broken": "broken as before",
    model.FAILING: "wrong as before",
    model.FIXED: "fixed",
    model.NEWLY_SUPPORTED: "newly supported",
}


def _part(rows: list[Comparison], noun: str) -> str:
    found = Counter(
        "still_broken"
        if row.correctness.verdict == model.BROKEN and not correctness_moved(row)
        else row.correctness.verdict
        for row in rows
    )
    said = [f"{found[word]} {phrase}" for word, phrase in PHRASES.items() if found[word]]
    for verdict, word in ((model.REGRESSED, "slower"), (model.IMPROVED, "faster")):
        ratios = [row.latency.ratio for row in rows if row.latency.verdict == verdict and row.latency.ratio]
        if ratios:
            extreme = max(ratios, key=lambda ratio: abs(math.log(ratio)))
            said.append(f"{len(ratios)} {word} by {'' if len(ratios) == 1 else 'up to '}{abs(extreme - 1):.0%}")
    return f"of {_number(len(rows), noun + ' row')}, {', '.join(said)}" if said else ""


def exit_codes(report: Report, fail_on: frozenset[str] = frozenset(), strict: bool = False) -> list[int]:
    """Every code that holds; `harness.errors.exit_code` chooses."""
    evidence, codes = report.evidence, []
    if any(record.status == "broken" for record in evidence.environments.values()):
        codes.append(errors.INFRASTRUCTURE)
    if any(record.status == "build_failed" for record in evidence.builds.values()):
        codes.append(errors.BUILD_FAILED)
    rows = [row for row in report.rows if not row.alone]
    if "correctness" in fail_on and any(_correctness_gate(row) for row in rows):
        codes.append(errors.CORRECTNESS_REGRESSED)
    if "latency" in fail_on and any(_latency_gate(row) for row in rows):
        codes.append(errors.LATENCY_REGRESSED)
    undecided = {aspect for aspect in fail_on for row in report.rows if getattr(row, aspect).verdict == model.UNDECIDED}
    if strict and undecided:
        codes.append(errors.UNDECIDED)
    return codes


def _correctness_gate(row: Comparison) -> bool:
    judged = row.correctness
    if judged.verdict == model.BROKEN:
        return judged.baseline.status == "ok"
    return judged.verdict in (model.REGRESSED, model.NO_LONGER_SUPPORTED)


def _latency_gate(row: Comparison) -> bool:
    """What cannot be timed any more must not pass a gate on time."""
    timed = row.latency
    if timed.verdict == model.BROKEN:
        return bool(timed.baseline.medians_us)
    return timed.verdict in (model.REGRESSED, model.NO_LONGER_SUPPORTED)
