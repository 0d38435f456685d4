"""Which of two causes leads, and what becomes of the causes of one case. Pure.

Rules do not know of each other. Which of two says more of the same fault is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.attribute import causes, changes, costs, verdicts
from reports.attribute.cards import card
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Cause, Grade, Kind, combined, rank, worse
from reports.attribute.grades import OF_OUTPUTS, graded
from reports.attribute.memory_use import memory_changes, memory_finding
from reports.attribute.table import ROWS, TIME_ROWS
from reports.attribute.times import time_changes
from reports.attribute.trials import Follows
from reports.compare.factors import SAME

# A cause of the left explains the right away on the rows that both have: it says more of the same fault.
FAILS_ALWAYS = (Kind.WRONG_EVERYWHERE,)
FAILS_ON_SOME = (*FAILS_ALWAYS, Kind.MASKED_BY_INPUTS, Kind.RANGE_OVERFLOW)
OWN_FAULTS = (*causes.MEMORY, Kind.WRONG_STREAM, Kind.PREDECESSOR_SENSITIVITY)
SURROUNDINGS = (Kind.ENVIRONMENT_CONFOUNDER, Kind.COMPONENT_MOVED)
FAILS_BY_LITTLE = (*FAILS_ON_SOME, Kind.TOLERANCE_TOO_TIGHT)
EXPLAINS = {
    # A kernel that is PyTorch's own operator has that operator's bits, whatever its object code is.
    Kind.REFERENCE_MOVED: causes.CODE,
    Kind.DEFAULT_BACKEND_MOVED: causes.CODE,
    # Where a package alone was exchanged, what PyTorch and the code are was held.
    Kind.COMPONENT_MOVED: (
        *causes.CODE,
        *causes.REFERENCES,
        Kind.ENVIRONMENT_CONFOUNDER,
        Kind.UNSUPPORTED_COMBINATION,
    ),
    Kind.INPUTS_MOVED: (*causes.CODE, *SURROUNDINGS, *causes.REFERENCES, *FAILS_BY_LITTLE),
    Kind.UNSUPPORTED_COMBINATION: FAILS_ALWAYS,
    Kind.WRONG_STREAM: FAILS_ALWAYS,
    Kind.MASKED_BY_INPUTS: FAILS_ALWAYS,
    Kind.RANGE_OVERFLOW: (*FAILS_ALWAYS, Kind.MASKED_BY_INPUTS),
    Kind.TOLERANCE_TOO_TIGHT: FAILS_ON_SOME,
    Kind.PREDECESSOR_SENSITIVITY: (*FAILS_ON_SOME, *SURROUNDINGS),
    **dict.fromkeys(causes.MEMORY, (*FAILS_BY_LITTLE, *SURROUNDINGS)),
}


def causes_given(case: CaseFacts) -> list[Cause]:
    """Return those of the rules, without what a nearer one makes void."""
    given = {row.rule: (row, found) for row in ROWS if row.is_asked(case) and (found := row.rule(case)) is not None}
    return [
        card(case, row.kind, found)
        for row, found in given.values()
        if not any(nearer in given for nearer in row.nearer)
    ]


def explained_by(cause: Cause, other: Cause, case: CaseFacts) -> bool:
    if cause is other or cause.cause not in EXPLAINS.get(other.cause, ()):
        return False
    if other.grade == Grade.POSSIBLE and cause.grade != Grade.POSSIBLE:
        return False  # what is better shown is not explained away by what may be so
    decided = cause.grade != Grade.LIKELY or case.fault_comes_with_variables
    if cause.cause in SURROUNDINGS and other.cause not in (Kind.INPUTS_MOVED, Kind.COMPONENT_MOVED) and decided:
        return False
    if other.cause == Kind.COMPONENT_MOVED and cause.under:
        return False  # a reference moved beside it
    return set(cause.rows) <= set(other.rows)


def excluded_by(cause: Cause, other: Cause) -> bool:
    """Return whether another cause of the same rows, better shown, rests on an observation that excludes this one."""
    excluded = {name for each in other.ruled_out for name in each.causes}
    surer = cause.grade != other.grade and worse(cause.grade, other.grade) == cause.grade
    return surer and cause.cause in excluded and bool(set(cause.rows) & set(other.rows))


def _fault_is_not_why(cause: Cause, found: Sequence[Cause], case: CaseFacts) -> bool:
    """Return whether an access out of bounds is not why the result moved. A variable that a thread meets too late is
    what a race makes of it. And where another build of the same sources was seen to bring the failure, wherever it ran,
    an access that a checker names is there; only one that the outputs were seen to follow is shown to be what fails."""
    if cause.cause != Kind.OUT_OF_BOUNDS:
        return False
    proven = {other.cause for other in found if other.grade == Grade.PROVEN}
    if case.accessed_what_outlived:
        return Kind.RACE in proven
    varied = any(spread.follows for _, spread in case.poison) or any(cell.offset_matters for cell in case.cells)
    return not varied and bool(proven.intersection(causes.CODE))


def _chosen_for_nothing(cause: Cause, found: Sequence[Cause]) -> bool:
    """Return whether a backend only may have been chosen, or was while PyTorch's others had no code for the call
    either."""
    refused = any((each.cause, each.grade) == (Kind.UNSUPPORTED_COMBINATION, Grade.PROVEN) for each in found)
    weak = cause.grade == Grade.POSSIBLE or (cause.grade == Grade.LIKELY and refused)
    return cause.cause == Kind.DEFAULT_BACKEND_MOVED and weak


def place(cause: Cause, found: Sequence[Cause], case: CaseFacts) -> int:
    """Return 0 for what leads, 2 for what comes last, else 1. A reference that moved under a kernel that did not leads
    where agreement fell, and comes last where it rose: then it is no reason to look for one, and what is wrong is."""
    if cause.cause in OF_OUTPUTS and cause.grade == Grade.POSSIBLE and case.variables_matter:
        return 2  # it was not told apart from the variables, which were found to matter
    if cause.cause in causes.MEMORY and case.fault_comes_with_variables:
        return 2  # what they make of it
    if _fault_is_not_why(cause, found, case) or _chosen_for_nothing(cause, found):
        return 2
    if not case.is_kernel or cause.cause not in causes.REFERENCES:
        return 1
    cells = [cell for cell in case.cells if cell.row.id in cause.rows]
    if not all(cell.bits.state == SAME for cell in cells):
        return 1
    return 0 if any(reference.fell for cell in cells for reference in cell.references) else 2


# -- from what rules give to what is shown ----------------------------------------------------------------


def correctness_causes(case: CaseFacts) -> list[Cause]:
    """Return leads with their parts, most important first. What no rule explains is undecided. Where the versions
    compute different things, only a fault that the kernel has in any version is told beside that."""
    other = tuple(row for row in case.rows if changes.concerns(row))
    if other:
        rest = tuple(row for row in case.rows if row not in other)
        changed = CaseFacts(case.evidence, other)
        own = [graded(changed, cause) for cause in causes_given(changed) if cause.cause in OWN_FAULTS]
        lead = card(changed, Kind.MEANING_CHANGED, changes.meaning_changed(changed))
        return [*_joined(changed, [lead, *own]), *(correctness_causes(CaseFacts(case.evidence, rest)) if rest else [])]
    by_variables = case.variables_follow is Follows.FACTOR
    found = [graded(case, c) for c in causes_given(case) if not (c.cause in OF_OUTPUTS and by_variables)]
    found = [cause for cause in found if not any(explained_by(cause, other, case) for other in found)]
    found = [cause for cause in found if not any(excluded_by(cause, other) for other in found)]
    explained = {row for cause in found for row in cause.rows}
    open_question = verdicts.undecided(case)
    left = tuple(cell.row for cell in open_question.cells if cell.row.id not in explained) if open_question else ()
    if open_question and left:
        part = CaseFacts(case.evidence, left)
        found.append(card(part, Kind.UNDECIDED, verdicts.undecided(part) or open_question))
    healthy = verdicts.nothing_moved(case) if all(cause.cause in causes.REFERENCES for cause in found) else None
    return [*_joined(case, found), *([card(case, Kind.NOTHING_MOVED, healthy)] if healthy is not None else [])]


def _joined(case: CaseFacts, found: Sequence[Cause]) -> list[Cause]:
    """Return causes that share rows as one with parts. A reference that moved under a kernel that did not leads: the
    kernel's own fault is then the part that was there before."""
    leads: list[Cause] = []
    for cause in sorted(found, key=lambda cause: (place(cause, found, case), rank(cause))):
        at = next((number for number, lead in enumerate(leads) if set(lead.rows) & set(cause.rows)), None)
        if at is None or Kind.UNDECIDED in (cause.cause, leads[at].cause):
            leads.append(cause)
        else:
            lead = leads[at]
            leads[at] = replace(
                combined(lead, cause),
                rows=tuple(dict.fromkeys((*lead.rows, *cause.rows))),
                wrong=lead.wrong or cause.wrong,
                workloads=tuple(dict.fromkeys((*lead.workloads, *cause.workloads))),
                group_key=(*lead.group_key, cause.cause),
            )
    return leads


def time_causes(cases: Sequence[CaseFacts]) -> list[Cause]:
    """Return one cause for each group of a case's rows that were called in the same direction."""
    found = []
    for change in time_changes(cases):
        given = ((kind, made) for rule, kind in TIME_ROWS if (made := rule(change)) is not None)
        kind, made = next(given)
        found.append(graded(change.case, card(change.case, kind, made, change), change))
    return found


def memory_causes(cases: Sequence[CaseFacts]) -> list[Cause]:
    changes_of_memory = memory_changes(cases)
    return [card(each.case, Kind.MEMORY_USE, memory_finding(each), each) for each in changes_of_memory]


def leaning_causes(cases: Sequence[CaseFacts]) -> list[Cause]:
    """Return that times lean one way and were not called."""
    found = ((case, costs.leaning(case)) for case in cases)
    return [card(case, Kind.UNDECIDED, leaning) for case, leaning in found if leaning is not None]
