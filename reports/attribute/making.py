"""How rules make causes, and what they cite: what a class shares with every other stands here once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.worker import protocol
from reports import model
from reports.attribute import observed
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.messages import asserted
from reports.attribute.model import CORRECTNESS, FAULTS, LATENCY, Cause, Figure, Ruled
from reports.attribute.observed import Finding, Spread
from reports.compare.factors import SAME, Factor
from reports.model import CorrectnessSide, Rate, Seen

IMPROVED = (model.FIXED, model.NEWLY_SUPPORTED, model.MORE_EXACT)


def make(
    case: Case,
    cause: str,
    grade: str,
    statement: str,
    cells: Sequence[Cell],
    evidence: Iterable[Seen],
    *,
    about: str = CORRECTNESS,
    ruled: Iterable[Ruled | None] = (),
    command: str = "",
    figures: Iterable[Figure | None] = (),
    gist: tuple[str, ...] = (),
    measured: bool = False,
    ratio: float = 1.0,
    under: tuple[str, ...] = (),
) -> Cause:
    """`gist`: what else must be alike for two causes to share a card, where that is not the whole statement."""
    said = statement.replace(case.kernel, "\0") if case.kernel else statement
    workloads = tuple(dict.fromkeys(cell.workload for cell in cells))
    return Cause(
        cause=cause,
        grade=grade,
        about=about,
        kernel=case.kernel,
        reference=case.reference,
        workloads=workloads,
        device=case.device,
        environment=case.environment,
        baseline=case.baseline,
        statement=statement,
        evidence=tuple(dict.fromkeys(evidence)),
        ruled_out=tuple(dict.fromkeys(each for each in ruled if each is not None)),
        next_command=command or case.command(cells),
        figures=tuple(each for each in figures if each is not None),
        rows=tuple(cell.row.id for cell in cells),
        wrong=any(side.status != protocol.OK for cell in cells for side in cell.sides),
        measured=measured,
        improved=ratio < 1 if about == LATENCY else _improved(cause, cells),
        ratio=ratio,
        under=under,
        gist=(cause, about, case.device, *(gist or (grade, said))),
    )


def _improved(cause: str, cells: Sequence[Cell]) -> bool:
    """A kernel's own fault is no better for showing in the baseline alone."""
    return cause not in FAULTS and bool(cells) and all(cell.verdict in IMPROVED for cell in cells)


def ruled(rival: str, factor: Factor) -> Ruled | None:
    """A factor that is the same in both environments cannot be what moved."""
    return Ruled(rival=rival, how=factor.seen.text, record=factor.seen.record) if factor.state == SAME else None


def excluded(rival: str, seen: Seen | None) -> Ruled | None:
    return Ruled(rival=rival, how=seen.text, record=seen.record) if seen is not None else None


def listed(names: Iterable[str], most: int = 3) -> str:
    every = list(dict.fromkeys(names))
    left = len(every) - most
    return ", ".join(every[:most]) + (f" and {left} more" if left > 0 else "")


def number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def share(rate: Rate | None) -> str:
    return f"{rate.passed} of {rate.trials}" if rate is not None else "an unknown number of"


def dtypes_of(case: Case, cells: Sequence[Cell]) -> str:
    infos = [case.evidence.workload(cell.workload) for cell in cells]
    return listed(dict.fromkeys(info.dtype for info in infos if info is not None))


def recipe_seen(cell: Cell, recipes: list[str]) -> Seen:
    told = []
    for recipe in recipes:
        rate = cell.passing(recipe, 1) or cell.passing(recipe, 0)
        if rate is not None:
            told.append(f"{recipe.replace('_', ' ')} {rate.passed}/{rate.trials}")
    return Seen(text=f"{cell.workload}: trials within tolerance: {', '.join(told)}", record=cell.record)


def became(cell: Cell) -> str:
    """What its verdict says of how its outputs moved."""
    words = {
        model.FIXED: "became right",
        model.LESS_EXACT: "became less exact",
        model.MORE_EXACT: "became more exact",
    }
    return words.get(cell.verdict, "became wrong")


def was_so(cells: Sequence[Cell]) -> list[Seen]:
    found = []
    for cell in cells[:3]:
        if all(cell.wrong) and not cell.row.alone:
            found.append(
                Seen(text=f"{cell.workload}: {cell.row.correctness.why}; {cell.bits.seen.text}", record=cell.record)
            )
        else:
            found.append(Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record))
    return found


def last_words(side: CorrectnessSide) -> str:
    """What an assertion said before it ended the process; empty where none did."""
    said = asserted(side)
    return f"; it said: {said[-200:]}" if said else ""


def steady_rivals(case: Case) -> list[Ruled | None]:
    return [
        excluded("a race", case.steady[0] if case.steady else None),
        excluded("uninitialised memory", case.memory_clean),
        excluded("what ran before", case.predecessor_clean),
    ]


PLACES = {
    "shared": "shared memory",
    "output": "the output's memory",
    "workspace": "memory that the allocator hands out",
    "heap": "the heap",
    "stack": "the stack",
}


def findings_of(case: Case, kind: str) -> list[tuple[Cell, Finding]]:
    return [(cell, finding) for cell in case.cells for finding in observed.findings(cell.checkers, kind)]


def silence_on(case: Case, kind: str) -> Seen | None:
    for cell in case.cells:
        found = observed.silent(cell.checkers, kind)
        if found is not None:
            result, path = found
            text = f"{result.tool} found nothing, and did find what was planted for it ({result.control or 'a fault'})"
            return Seen(text=text, record=path)
    return None


def finding_seen(finding: Finding) -> Seen:
    where = f" at {finding.finding.where}" if finding.finding.where else ""
    proof = (
        f"; it also found the fault planted for it ({finding.result.control})"
        if finding.proven and finding.result.control
        else "; it found the fault planted for it"
        if finding.proven
        else "; no planted fault shows that it works here"
    )
    return Seen(text=f"{finding.result.tool}: {finding.finding.text}{where}{proof}", record=finding.path)


def spread_seen(cell: Cell, spread: Spread) -> Seen:
    rates = ", ".join(
        f"{result.condition.pattern or result.condition.label} {result.passed}/{result.runs}"
        for result in spread.results
    )
    told = PLACES.get(spread.site, spread.site)
    where = f"{cell.workload} in {spread.environment}"
    text = f"{where}: with {told} filled before the call, runs within tolerance: {rates}"
    return Seen(text=text, record=spread.path)


def hidden(cells: Sequence[Cell]) -> list[Seen]:
    """Inputs on which a kernel that is wrong on independent ones is right: a test that has no others passes."""
    found = []
    for cell in cells:
        for conditions in cell.masks:
            tested = conditions.as_laid_out
            failing = any(result.passed < result.runs for result in tested if result.condition.recipe == "independent")
            passing = [result.condition.label for result in tested if result.runs and result.passed == result.runs]
            if failing and passing:
                where = f"{cell.workload} in {conditions.record.environment}"
                text = f"{where}: right all the same with {'; '.join(passing)}: a test of such inputs alone passes"
                found.append(Seen(text=text, record=conditions.path))
    return found[-1:]
