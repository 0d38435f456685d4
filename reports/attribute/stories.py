"""Causes of one case, told as stories: what leads, what is the other part of it, what is only its symptom. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reports.attribute import variables, verdicts
from reports.attribute.cases import Case
from reports.attribute.grading import OF_OUTPUTS, graded
from reports.attribute.model import DEFAULT_BACKEND_MOVED, REFERENCE_MOVED, UNDECIDED, Cause, rank
from reports.attribute.model import told as one_story
from reports.attribute.precedence import OF_TIME, explained, heard, place, ruled_out
from reports.attribute.timed import timed_groups
from reports.attribute.timing import unexplained
from reports.load.evidence import Evidence


def correctness_causes(case: Case) -> list[Cause]:
    """Leads with their parts, most important first. What no rule explains is undecided."""
    every = heard(case)
    given, asides = ([cause for cause in every if cause.aside is aside] for aside in (False, True))
    found = [graded(case, cause) for cause in given if not (cause.cause in OF_OUTPUTS and variables.decide(case))]
    found = [cause for cause in found if not any(explained(case, cause, other) for other in found)]
    found = [cause for cause in found if not any(ruled_out(cause, other) for other in found)]
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


def _stories(case: Case, found: Sequence[Cause]) -> list[Cause]:
    """Causes that share rows are one story. A reference that moved under a kernel that did not leads: the kernel's own
    fault is then the part that was there before."""
    order = sorted(found, key=lambda cause: (place(case, cause, found), rank(cause)))
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


def explain_times(evidence: Evidence, cases: Sequence[Case]) -> list[Cause]:
    """One cause for each group of a case's rows that were called in the same direction."""
    found = []
    for timed in timed_groups(evidence, cases):
        causes = (cause for rule in OF_TIME if (cause := rule(timed)) is not None)
        cause = next(causes, None) or unexplained(timed)
        found.append(graded(timed.case, cause, timed))
    return found
