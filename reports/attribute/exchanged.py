"""Which packages differ between environments, and which of them moved something: the summary of all exchanges. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.attribute.facts.cases import cases
from reports.attribute.facts.components import COMPONENT, TOGETHER
from reports.attribute.facts.swaps import MIXED, NEITHER, PLACE
from reports.compare.rows import SUBJECTS
from reports.load.evidence import Evidence
from reports.model import Comparison
from reports.text import together

ANSWERS = {
    COMPONENT: "moved it: {what} {go} with the package, {held}",
    TOGETHER: "moved it together with the rest of the environment: {what} {change} only if both do",
    PLACE: "not the reason: {what} {go} with the rest of the environment, with either version",
    NEITHER: "{what} did not change in these runs",
    MIXED: "undecided: {what} {go} with neither alone",
}

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
    """Of every package that was exchanged, or could not be, those first that moved something."""
    found = []
    for case in cases(evidence, [row for row in rows if row.kind in SUBJECTS]) if evidence.components else ():
        by_result = {(cell.workload, each.package): kind for cell, each, kind in case.exchanged}
        for cell, each in ((one, each) for one in case.cells for each in one.exchanges):
            kinds = {"the result": by_result.get((cell.workload, each.package))}
            if each.timed:
                kinds["the time"] = case.time_follows(each)
                kinds["the memory"] = each.memory_follows(evidence.run.thresholds.memory)
            held = "with the one PyTorch that could be tried" if each.one_way else "whichever PyTorch it is with"
            by_kind = {kind: [what for what, its in kinds.items() if its == kind] for kind in kinds.values()}
            told = [_answer(kind, what, held) for kind, what in by_kind.items() if kind in ANSWERS]
            stacks = [evidence.environments.get(name) for name in case.environments]
            wheels = [stack.observed.wheels.get(each.package) if stack and stack.observed else None for stack in stacks]
            one, two = (wheel.version if wheel else "" for wheel in wheels)
            found.append(
                PackageAnswer(
                    package=each.package,
                    versions=(one, two),
                    baseline=case.baseline,
                    environment=case.environment,
                    subject=case.subject,
                    workload=cell.workload,
                    device=case.device,
                    moved=any(kind in (COMPONENT, TOGETHER) for kind in by_kind),
                    answer="; ".join([*told, *each.problems]) or UNTOLD,
                    record=each.path,
                )
            )
    return sorted(found, key=lambda each: not each.moved)


def _answer(kind: str, what: Sequence[str], held: str) -> str:
    go, change = ("goes", "changes") if len(what) == 1 else ("go", "change")
    return ANSWERS[kind].format(what=together(what), held=held, go=go, change=change)
