"""Causes of one case, told as stories: what leads, what is the other part of it, what is only its symptom. Pure.

Rules do not know of each other. Which of two causes of the same rows is the deeper one is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.causes import (
    astray,
    code,
    composed,
    followed,
    lengths,
    memory,
    places,
    races,
    recipes,
    references,
    state,
    support,
    tolerances,
    variables,
    verdicts,
    widths,
    wrapped,
)
from reports.causes.cases import Case
from reports.causes.grading import OF_OUTPUTS, graded
from reports.causes.model import (
    BUILD_MOVED,
    DECISIVE,
    DEFAULT_BACKEND_MOVED,
    ENVIRONMENT_CONFOUNDER,
    INPUTS_MOVED,
    KERNEL_CODE_MOVED,
    MASKED_BY_INPUTS,
    MEMORY,
    MOVERS,
    PREDECESSOR_SENSITIVITY,
    RANGE_OVERFLOW,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
    TOLERANCE_TOO_TIGHT,
    UNDECIDED,
    UNSUPPORTED_COMBINATION,
    WRONG_EVERYWHERE,
    WRONG_STREAM,
    Cause,
    rank,
    worse,
)
from reports.causes.model import told as one_story
from reports.factors import SAME

RULES = (
    *astray.RULES,
    *code.RULES,
    *memory.RULES,
    *races.RULES,
    *state.RULES,
    *references.RULES,
    *wrapped.RULES,
    *support.RULES,
    *followed.RULES,
    *composed.RULES,
    *variables.RULES,
    *recipes.RULES,
    *widths.RULES,
    *places.RULES,
    *lengths.RULES,
    *tolerances.RULES,
    *verdicts.RULES,
)

# A cause of the left explains the right away on the rows that both have: it says more of the same fault.
EXPLAINS = {
    # A kernel that is PyTorch's own operator has that operator's bits, whatever its object code is.
    REFERENCE_MOVED: (BUILD_MOVED, KERNEL_CODE_MOVED),
    DEFAULT_BACKEND_MOVED: (BUILD_MOVED, KERNEL_CODE_MOVED),
    INPUTS_MOVED: (*MOVERS, MASKED_BY_INPUTS, RANGE_OVERFLOW, TOLERANCE_TOO_TIGHT, WRONG_EVERYWHERE),
    UNSUPPORTED_COMBINATION: (WRONG_EVERYWHERE,),
    WRONG_STREAM: (WRONG_EVERYWHERE,),
    MASKED_BY_INPUTS: (WRONG_EVERYWHERE,),
    RANGE_OVERFLOW: (WRONG_EVERYWHERE, MASKED_BY_INPUTS),
    TOLERANCE_TOO_TIGHT: (WRONG_EVERYWHERE, MASKED_BY_INPUTS, RANGE_OVERFLOW),
    PREDECESSOR_SENSITIVITY: (WRONG_EVERYWHERE, MASKED_BY_INPUTS, RANGE_OVERFLOW, ENVIRONMENT_CONFOUNDER),
    **{
        fault: (WRONG_EVERYWHERE, MASKED_BY_INPUTS, RANGE_OVERFLOW, TOLERANCE_TOO_TIGHT, ENVIRONMENT_CONFOUNDER)
        for fault in MEMORY
    },
}


def correctness_causes(case: Case) -> list[Cause]:
    """Leads with their parts, most important first. What no rule explains is undecided."""
    every = [cause for rule in RULES if (cause := rule(case)) is not None]
    given, asides = ([cause for cause in every if cause.aside is aside] for aside in (False, True))
    found = [graded(case, cause) for cause in given if not (cause.cause in OF_OUTPUTS and variables.decide(case))]
    found = [cause for cause in found if not any(_explained(case, cause, other) for other in found)]
    found = [cause for cause in found if not any(_ruled_out(cause, other) for other in found)]
    taken = {row for cause in found for row in cause.rows}
    open_question = verdicts.undecided(case)
    if open_question is not None:
        left = tuple(row for row in open_question.rows if row not in taken)
        if left:
            kept = [cell for cell in case.cells if cell.row.id in left]
            again = verdicts.undecided(Case(case.evidence, tuple(cell.row for cell in kept)))
            found += [again] if again is not None else []
    if all(cause.cause in (REFERENCE_MOVED, DEFAULT_BACKEND_MOVED) for cause in found):
        healthy = verdicts.nothing_moved(case)
        return [*_stories(case, found), *([healthy] if healthy is not None else []), *asides]
    return [*_stories(case, found), *asides]


def _explained(case: Case, cause: Cause, other: Cause) -> bool:
    if cause is other or cause.cause not in EXPLAINS.get(other.cause, ()):
        return False
    if other.grade == SUGGESTIVE and cause.grade != SUGGESTIVE:
        return False  # what is better shown is not explained away by what may be so
    decided = cause.grade != STRONG or variables.bring(case)
    if cause.cause == ENVIRONMENT_CONFOUNDER and other.cause != INPUTS_MOVED and decided:
        return False
    return set(cause.rows) <= set(other.rows)


def _ruled_out(cause: Cause, other: Cause) -> bool:
    """Whether another cause of the same rows, better shown, rests on an observation that excludes this one."""
    excluded = {name for each in other.ruled_out for name in each.causes}
    surer = cause.grade != other.grade and worse(cause.grade, other.grade) == cause.grade
    return surer and cause.cause in excluded and bool(set(cause.rows) & set(other.rows))


def _stories(case: Case, found: Sequence[Cause]) -> list[Cause]:
    """Causes that share rows are one story. A reference that moved under a kernel that did not leads: the kernel's own
    fault is then the part that was there before."""
    order = sorted(found, key=lambda cause: (_place(case, cause, found), rank(cause)))
    told: list[Cause] = []
    for cause in order:
        lead = next((number for number, each in enumerate(told) if set(each.rows) & set(cause.rows)), None)
        if lead is None or UNDECIDED in (cause.cause, told[lead].cause):
            told.append(cause)
        else:
            head = told[lead]
            told[lead] = replace(
                one_story(head, cause),
                rows=tuple(dict.fromkeys((*head.rows, *cause.rows))),
                wrong=head.wrong or cause.wrong,
                workloads=tuple(dict.fromkeys((*head.workloads, *cause.workloads))),
                gist=(*head.gist, cause.cause),
            )
    return told


def _chosen_for_nothing(cause: Cause, found: Sequence[Cause]) -> bool:
    """A backend that may have been chosen, or one that was while PyTorch's others had no code for the call either."""
    refused = any((each.cause, each.grade) == (UNSUPPORTED_COMBINATION, DECISIVE) for each in found)
    return cause.cause == DEFAULT_BACKEND_MOVED and (cause.grade == SUGGESTIVE or (cause.grade == STRONG and refused))


def _place(case: Case, cause: Cause, found: Sequence[Cause]) -> int:
    """A reference that moved under a kernel that did not leads where agreement fell, and comes last where it rose: then
    it is no reason to look for one, and what is wrong is."""
    if cause.cause in OF_OUTPUTS and cause.grade == SUGGESTIVE and variables.matter(case):
        return 2  # it was not told apart from the variables, which were found to matter
    if cause.cause in MEMORY and variables.bring(case):
        return 2  # what they make of it
    if memory.follows(case, cause, found) or _chosen_for_nothing(cause, found):
        return 2
    if not case.is_kernel or cause.cause not in (REFERENCE_MOVED, DEFAULT_BACKEND_MOVED):
        return 1
    cells = [cell for cell in case.cells if cell.row.id in cause.rows]
    if not all(cell.bits.state == SAME for cell in cells):
        return 1
    return 0 if any(reference.fell for cell in cells for reference in cell.references) else 2
