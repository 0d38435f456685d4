"""What rules about memory cite alike: what checkers found, what a filling changed, which inputs hide a fault. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reports.causes import observed
from reports.causes.cases import Case
from reports.causes.cells import Cell
from reports.causes.observed import Finding, Spread
from reports.model import Seen

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
