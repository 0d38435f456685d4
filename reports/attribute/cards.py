"""Make a cause of what a rule found: its grade, what is ruled out, its words and figures, once for all rules. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.worker import protocol
from reports import model
from reports.attribute import causes
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import About, Cause, Kind, Rival, RuledOut, combined
from reports.attribute.cells import CellFacts
from reports.attribute.experiments import sizes_text
from reports.attribute.figures import figures_of
from reports.attribute.finding import Finding, grade_of
from reports.attribute.memory_use import MemoryChange
from reports.attribute.times import TimeChange
from reports.attribute.wording import citations, listed, sentence
from reports.compare.factors import SAME, Factor
from reports.model import Seen
from reports.text import count_of

Change = TimeChange | MemoryChange | None

# A mistake, and what has no results, is told by its message: nothing else is weighed.
BY_MESSAGE = (*causes.MISTAKES, Kind.ABI_BREAK, Kind.UNSUPPORTED_COMBINATION)


def _if_same(factor: Factor) -> Seen | None:
    return factor.seen if factor.state == SAME else None


def ruled_out(case: CaseFacts, cell: CellFacts) -> dict[Rival, Seen | str | None]:
    """Return what excludes each rival of a result. A cause drops those that stand for itself."""
    compared = not case.alone
    return {
        Rival.INPUTS: _if_same(cell.inputs) if compared else None,
        Rival.ERROR_SCALE: _if_same(cell.yardstick) if compared else None,
        Rival.CODE: _if_same(case.code) if case.is_kernel else None,
        Rival.CHANCE: case.steady,
        Rival.UNINITIALISED: None if case.findings("uninitialised") else case.memory_clean,
        Rival.CALLS_BEFORE: case.predecessor_clean,
        Rival.OUT_OF_BOUNDS: None if case.faulted else case.silence_on("out_of_bounds"),
        Rival.PYTORCH: "both environments hold the very same PyTorch" if case.one_torch and compared else None,
        Rival.PACKAGES: _packages_unmoved(case, times=False),
    }


def ruled_out_of_time(change: TimeChange) -> dict[Rival, Seen | str | None]:
    """Return what excludes each rival of a time that changed."""
    case, steady = change.case, change.around.steady
    one, two = change.threads
    busy = "its calls keep the same number of processors busy in both environments"
    return {
        Rival.MACHINE: f"{count_of(steady, 'other target')} of the same launches did not change" if steady else None,
        Rival.THREADS: busy if one != two and change.at_work_alike else None,
        Rival.CODE: _if_same(case.code) if case.is_kernel else None,
        Rival.PYTORCH: "both environments hold the very same PyTorch" if case.one_torch else None,
        Rival.PACKAGES: _packages_unmoved(case, times=True),
    }


def _packages_unmoved(case: CaseFacts, *, times: bool) -> Seen | None:
    """Return that no package which was exchanged made the change."""
    unmoved = case.unmoved_packages(times=times)
    if not unmoved or any(each.package not in unmoved for cell in case.cells for each in cell.exchanges):
        return None
    text = f"{listed(sorted(unmoved))} of the other environment, with PyTorch held, changed nothing"
    return Seen(text=text, record=next(iter(unmoved.values())))


def _excluded(
    case: CaseFacts, finding: Finding, kind: Kind, cells: Sequence[CellFacts], change: Change
) -> list[RuledOut]:
    every: dict[Rival, Seen | str | None] = {}
    if isinstance(change, TimeChange):
        every |= ruled_out_of_time(change)
    elif change is None and kind not in BY_MESSAGE and cells:
        every |= ruled_out(case, cells[0])
    every |= {rival: by for rival, by in finding.out.items() if by is not None}
    return [
        RuledOut(rival=rival, how=by.text, record=by.record) if isinstance(by, Seen) else RuledOut(rival=rival, how=by)
        for rival, by in every.items()
        if by is not None and kind not in causes.STANDS_FOR[rival]
    ]


def card(case: CaseFacts, kind: Kind, finding: Finding, change: Change = None) -> Cause:
    """Return the cause that a rule found: of a result, of a time, or of memory."""
    kind, cells = finding.kind or kind, list(dict.fromkeys(finding.cells))
    about, ratio = _about(finding, change)
    missing = [rival for rival, exclusion in finding.needs.items() if not exclusion]
    grade = grade_of(finding.shown, missing)
    facts = {"cells": cells, "change": change, "about": about, "missing": missing, **_facts(case, finding)}

    def tell(this: str, reference: str) -> str:
        places = case.versions[0], this
        return sentence(finding.template or kind, this=this, places=places, reference=reference, **facts)

    made = Cause(
        cause=kind,
        grade=grade,
        about=about,
        kernel=case.kernel,
        reference=case.reference,
        workloads=tuple(dict.fromkeys(cell.workload for cell in cells)),
        device=case.device,
        environment=case.environment,
        baseline=case.baseline,
        statement=tell(case.versions[1], case.reference),
        tell=tell,
        evidence=tuple(
            citations(**{**facts, "this": case.versions[1], "versions": case.versions, "sizes_text": sizes_text})
        ),
        ruled_out=tuple(_excluded(case, finding, kind, cells, change)),
        next_command=finding.command or _next(case, kind, cells, about),
        figures=tuple(figures_of(case, cells, finding, change)),
        rows=tuple(cell.row.id for cell in cells),
        is_operator=case.is_operator,
        wrong=any(side.status != protocol.OK for cell in cells for side in cell.sides),
        measured=finding.measured,
        improved=ratio < 1 if about is not About.CORRECTNESS else _improved(kind, cells),
        ratio=ratio,
        under=finding.under,
        own_fix=finding.fix,
        group_key=_group(case, kind, finding, about, grade),
    )
    return combined(made, card(case, kind, finding.also, change)) if finding.also is not None else made


def _facts(case: CaseFacts, finding: Finding) -> dict[str, Any]:
    """Return what a sentence may name of a case and of a finding."""
    return {
        "case": case,
        "finding": finding,
        "kernel": case.kernel,
        "subject": case.subject,
        "base": case.versions[0],
        **finding.words,
        **finding.details,
    }


def _about(finding: Finding, change: Change) -> tuple[About, float]:
    """Return what a cause is about, and how many times as much of it there is: 1 for a result."""
    if isinstance(change, TimeChange):
        furthest = max if change.sign > 0 else min
        return About.LATENCY, furthest(change.ratios, default=1.0)
    if change is not None:
        return About.MEMORY, change.most.ratio or 1.0
    return (About.LATENCY if "leans" in finding.words else About.CORRECTNESS), 1.0


def _group(case: CaseFacts, kind: Kind, finding: Finding, about: About, grade: str) -> tuple[str, ...]:
    """Return what must be alike for two causes to share a card: all facts of the sentence, but for who and where."""
    parts = [kind, about, grade, case.device, *finding.under]
    if about is not About.CORRECTNESS:
        parts.append(case.environment)
    if kind not in causes.SHARED or (kind == Kind.UNDECIDED and about is About.LATENCY):
        parts.append(case.reference if about is About.CORRECTNESS else case.subject)
    parts += [f"{name}={value}" for name, value in finding.words.items()]
    parts += [each.text for each in finding.differences]
    if finding.code and case.is_kernel:
        parts += [each.text for each in case.build_differences]
    return tuple(map(str, parts))


def _next(case: CaseFacts, kind: Kind, cells: Sequence[CellFacts], about: About) -> str:
    """Return the experiments, where they decide or show more, else the run again."""
    if (case.is_kernel or about is About.LATENCY) and about is not About.MEMORY and kind in causes.EXPLAINED:
        return case.explain(cells)
    return f"{case.command(cells)} --fresh" if about is not About.CORRECTNESS else case.command(cells)


IMPROVED = (model.FIXED, model.NEWLY_SUPPORTED, model.MORE_EXACT)


def _improved(kind: Kind, cells: Sequence[CellFacts]) -> bool:
    """Return whether all got better. A kernel's own fault is no better for showing in the baseline only."""
    return kind not in causes.FAULTS and bool(cells) and all(cell.verdict in IMPROVED for cell in cells)
