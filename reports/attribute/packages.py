"""Which packages differ between environments, and which of them moved something: the summary of all exchanges. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.attribute.cases import CaseFacts, cases
from reports.attribute.cells import CellFacts
from reports.attribute.trials import Exchange, Follows
from reports.compare.rows import SUBJECTS
from reports.load.evidence import Evidence
from reports.model import Comparison
from reports.text import together

ANSWERS = {
    Follows.FACTOR: "moved it: {what} {go} with the package, {held}",
    Follows.PLACE: "not the reason: {what} {go} with the rest of the environment, with either version",
    Follows.NEITHER: "{what} did not change in these runs",
    Follows.BOTH: "undecided: {what} {go} with neither alone",
}
ONLY_BOTH = "moved it together with the rest of the environment: {what} {change} only if both do"
UNTOLD = "undecided: its verdict did not move, or too little ran to tell"


@dataclass(frozen=True, kw_only=True)
class PackageAnswer:
    """One package on one kernel or operator: what its exchange between two environments showed."""

    package: str
    versions: tuple[str, str]
    baseline: str
    environment: str
    subject: str
    workload: str
    device: str
    moved: bool
    answer: str
    record: str


def package_answers(evidence: Evidence, rows: Sequence[Comparison]) -> list[PackageAnswer]:
    """Return every package that was exchanged, or could not be; those first that moved something."""
    of_subjects = [row for row in rows if row.kind in SUBJECTS]
    found = [
        _answer(case, cell, each)
        for case in (cases(evidence, of_subjects) if evidence.factors else ())
        for cell in case.cells
        for each in cell.exchanges
    ]
    return sorted(found, key=lambda each: not each.moved)


def _answer(case: CaseFacts, cell: CellFacts, exchange: Exchange) -> PackageAnswer:
    result = {(c.workload, each.package): state for c, each, state in case.exchanged}
    states = {"the result": result.get((cell.workload, exchange.package), Follows.UNKNOWN)}
    if exchange.timed:
        states["the time"] = case.time_follows(exchange)
        states["the memory"] = exchange.memory_follows(case.evidence.run.thresholds.memory)
    by_state: dict[Follows, list[str]] = {}
    for what, state in states.items():
        by_state.setdefault(state, []).append(what)
    only_both = states["the result"] is Follows.BOTH and exchange.needs_both
    told = []
    for state, named in by_state.items():
        if state in ANSWERS:
            go, change = ("goes", "changes") if len(named) == 1 else ("go", "change")
            text = ONLY_BOTH if state is Follows.BOTH and only_both else ANSWERS[state]
            held = "with the one PyTorch that could be tried" if exchange.is_one_way else "whichever PyTorch it is with"
            told.append(text.format(what=together(named), held=held, go=go, change=change))
    stacks = [evidence.observed if evidence else None for evidence in case.stacks]
    wheels = [seen.wheels.get(exchange.package) if seen else None for seen in stacks]
    one, two = (wheel.version if wheel else "" for wheel in wheels)
    return PackageAnswer(
        package=exchange.package,
        versions=(one, two),
        baseline=case.baseline,
        environment=case.environment,
        subject=case.subject,
        workload=cell.workload,
        device=case.device,
        moved=Follows.FACTOR in by_state or only_both,
        answer="; ".join([*told, *exchange.problems]) or UNTOLD,
        record=exchange.path,
    )
