"""Make a cause of what a rule found: its grade, and what is ruled out, are computed here for all rules. Pure.

A rule says how its cause was shown, and what must be excluded for it. `grade_of` makes the grade of the two, and
`ruled_out` lists every rival that an observation excludes: what a page says as "proven" can be followed on this page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from harness.schema.run_records import RunRecord
from harness.worker import protocol
from reports import model
from reports.attribute import causes, figures
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import REFERENCES_TOLD, THIS, About, Cause, Figure, Grade, Kind, Rival, RuledOut
from reports.attribute.cells import CellFacts
from reports.attribute.evidence import extent, listed, number, time_seen
from reports.attribute.times import TimeChange
from reports.attribute.words import EXPLAINED, Says
from reports.compare.factors import SAME, Factor
from reports.model import Latency, Seen
from reports.text import matrix_command


class Shown(Enum):
    """How a cause was shown. FOLLOWED: the result followed the one factor that was varied, or the cause is itself a
    fact of the records. TOGETHER: cause and result changed together. HINT: it would explain the result."""

    FOLLOWED = "followed"
    TOGETHER = "together"
    HINT = "hint"
    NOT = "not"


def grade_of(shown: Shown, missing: Sequence[str]) -> Grade:
    """Return the grade of what was shown; `missing` are the rivals that nothing excludes."""
    match shown:
        case Shown.FOLLOWED:
            return Grade.LIKELY if missing else Grade.PROVEN
        case Shown.TOGETHER:
            return Grade.POSSIBLE if missing else Grade.LIKELY
        case Shown.HINT:
            return Grade.POSSIBLE
        case Shown.NOT:
            return Grade.UNDECIDED


# A mistake, and what has no results, is told by its message: nothing else is weighed.
BY_MESSAGE = (*causes.MISTAKES, Kind.ABI_BREAK, Kind.UNSUPPORTED_COMBINATION)


def excluded(rival: Rival, by: Seen | Factor | str | None) -> RuledOut | None:
    """By an observation, where there is one; or by a factor that is the same in both environments."""
    if isinstance(by, Factor):
        by = by.seen if by.state == SAME else None
    seen = Seen(text=by) if isinstance(by, str) else by
    return RuledOut(rival=rival, how=seen.text, record=seen.record) if seen is not None else None


def ruled_out(case: CaseFacts, cell: CellFacts) -> list[RuledOut | None]:
    """Every rival of a result that an experiment or a digest excludes. A cause drops those that stand for itself."""
    torch = "both environments hold the very same PyTorch"
    return [
        excluded(Rival.INPUTS, cell.inputs if not case.alone else None),
        excluded(Rival.ERROR_SCALE, cell.yardstick if not case.alone else None),
        excluded(Rival.CODE, case.code if case.is_kernel else None),
        excluded(Rival.CHANCE, case.steady),
        excluded(Rival.UNINITIALISED, None if case.findings("uninitialised") else case.memory_clean),
        excluded(Rival.CALLS_BEFORE, case.predecessor_clean),
        excluded(Rival.OUT_OF_BOUNDS, None if case.faulted else case.silence_on("out_of_bounds")),
        excluded(Rival.PYTORCH, torch if case.one_torch and not case.alone else None),
        excluded(Rival.PACKAGES, _packages_unmoved(case, "changed nothing", times=False)),
    ]


def ruled_out_of_time(change: TimeChange) -> list[RuledOut | None]:
    """The same of a time that changed."""
    case, around = change.case, change.around
    one, two = change.threads
    steady = f"{number(around.steady, 'other target')} of the same launches did not change"
    busy = "its calls keep the same number of processors busy in both environments"
    return [
        excluded(Rival.MACHINE, steady if around.steady else None),
        excluded(Rival.THREADS, busy if one != two and change.at_work_alike else None),
        excluded(Rival.CODE, case.code if case.is_kernel else None),
        excluded(Rival.PYTORCH, "both environments hold the very same PyTorch" if case.one_torch else None),
        excluded(Rival.PACKAGES, _packages_unmoved(case, "made no such difference", times=True)),
    ]


def _packages_unmoved(case: CaseFacts, how: str, *, times: bool) -> Seen | None:
    """That no package which was exchanged made the change."""
    unmoved = case.unmoved_packages(times=times)
    if not unmoved or any(each.package not in unmoved for cell in case.cells for each in cell.exchanges):
        return None
    text = f"{listed(sorted(unmoved))} of the other environment, with PyTorch held, {how}"
    return Seen(text=text, record=next(iter(unmoved.values())))


def card(
    case: CaseFacts,
    kind: Kind,
    shown: Shown,
    says: Says,
    cells: Sequence[CellFacts],
    evidence: Iterable[Seen],
    /,
    *,
    needs: Mapping[str, object] | None = None,
    out: Iterable[RuledOut | None] = (),
    drawn: Iterable[Figure | None] = (),
    group: tuple[str, ...] = (),
    about: About = About.CORRECTNESS,
    command: str = "",
    measured: bool = False,
    ratio: float = 1.0,
    under: tuple[str, ...] = (),
    fix: str = "",
    **names: Any,
) -> Cause:
    """`says`: its statement, which `names` complete. `needs`: rivals that must be excluded, each with what excludes it.
    `out`: what else is ruled out. `group`: what else must be alike for two causes to share a card, where that is not
    the sentence with all that completes it."""
    cells = list(dict.fromkeys(cells))
    base, this = case.versions
    missing = [rival for rival, exclusion in (needs or {}).items() if not exclusion]
    grade = grade_of(shown, missing)
    if missing:
        evidence = [*evidence, Seen(text=f"not excluded: {', '.join(missing)}")]
    weighed = about is About.CORRECTNESS and kind not in BY_MESSAGE and cells
    every = {each.rival: each for each in (*(ruled_out(case, cells[0]) if weighed else ()), *out) if each is not None}
    facts = (str(fact).replace(case.kernel or "\0", "").replace(THIS, "").replace(this, "") for fact in names.values())
    template = says.value.format(kernel=case.kernel, subject=case.subject, base=base, this=THIS, **names)
    return Cause(
        cause=kind,
        grade=grade,
        about=about,
        kernel=case.kernel,
        reference=case.reference,
        workloads=tuple(dict.fromkeys(cell.workload for cell in cells)),
        device=case.device,
        environment=case.environment,
        baseline=case.baseline,
        statement=template.replace(THIS, this).replace(REFERENCES_TOLD, case.reference),
        template=template,
        evidence=tuple({seen.text: seen for seen in reversed(list(evidence))}.values())[::-1],
        ruled_out=tuple(each for each in every.values() if kind not in each.causes),
        next_command=command or (case.explain(cells) if says in EXPLAINED else case.command(cells)),
        figures=tuple(each for each in drawn if each is not None),
        rows=tuple(cell.row.id for cell in cells),
        is_operator=case.is_operator,
        wrong=any(side.status != protocol.OK for cell in cells for side in cell.sides),
        measured=measured,
        improved=ratio < 1 if about is not About.CORRECTNESS else _improved(kind, cells),
        ratio=ratio,
        under=under,
        own_fix=fix,
        group_key=(kind, about, case.device, *(group or (grade, says.name, case.reference, *facts))),
    )


def card_of_time(
    change: TimeChange,
    kind: Kind,
    shown: Shown,
    says: Says,
    evidence: Sequence[Seen],
    *,
    out: Iterable[RuledOut | None] = (),
    drawn: Sequence[Figure | None] = (),
    group: tuple[str, ...] = (),
    command: str = "",
    **names: Any,
) -> Cause:
    case, extreme = change.case, max if change.sign > 0 else min
    usual = case.explain(change.cells) if says in EXPLAINED else f"{case.command(change.cells)} --fresh"
    return card(
        case,
        kind,
        shown,
        says,
        change.cells,
        [*time_seen(change), *evidence],
        about=About.LATENCY,
        out=[*ruled_out_of_time(change), *out],
        ratio=extreme(change.ratios, default=1.0),
        command=command or usual,
        drawn=[*drawn, figures.ratios_figure(change)],
        group=(*group, case.environment, change.word) if group else (),
        extent=extent(change),
        **names,
    )


FEWEST, ENOUGH = 2, 10  # launches of which nothing can be said, and what they are by default


def launches_command(run: RunRecord, kernel: str, device: str, timed: Iterable[Latency]) -> str:
    """Return the launches that would decide times which are undecided; empty where nobody can tell how many."""
    timed = list(timed)
    needed = [each.launches_needed for each in timed if each.launches_needed]
    undecided = [each for each in timed if each.verdict == model.UNDECIDED]
    if any(len(side.blocks) < FEWEST for each in undecided for side in (each.baseline, each.this)):
        needed.append(ENOUGH)
    if not needed:
        return ""
    both = " (for each of the two runs, then compare them again)" if run.sides else ""
    return f"{matrix_command(run.command, kernel=kernel, device=device)} --launches {max(needed)}{both}"


IMPROVED = (model.FIXED, model.NEWLY_SUPPORTED, model.MORE_EXACT)


def _improved(kind: Kind, cells: Sequence[CellFacts]) -> bool:
    """A kernel's own fault is no better for showing in the baseline only."""
    return kind not in causes.FAULTS and bool(cells) and all(cell.verdict in IMPROVED for cell in cells)
