"""Which rules there are, which of two causes leads, and what becomes of the causes of one case. Pure.

Rules do not know of each other. Which of two says more of the same fault is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from reports.attribute import causes, changes, costs, faults, operators, ranges, refusals, verdicts
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Cause, Grade, Kind, combined, rank, worse
from reports.attribute.grades import OF_OUTPUTS, graded
from reports.attribute.times import TimeChange, time_changes
from reports.attribute.trials import Follows
from reports.compare.factors import SAME

Rule = Callable[[CaseFacts], Cause | None]

RULES: tuple[Rule, ...] = (
    faults.wrong_stream,
    changes.inputs_moved,
    changes.broken_environment,
    refusals.does_not_load,
    refusals.does_not_build,
    refusals.build_failed,
    changes.code_moved,
    changes.environment_confounder,
    changes.component_moved,
    changes.sole_package,
    changes.compiled_code_moved,
    faults.out_of_bounds,
    faults.uninitialised_shared,
    faults.uninitialised_global,
    faults.uninitialised_host,
    faults.race,
    faults.not_repeatable,
    faults.writes_inputs,
    faults.drawn_once,
    faults.predecessor,
    faults.keeps_state,
    changes.reference_moved_under,
    changes.default_moved_under,
    changes.reference_moved,
    changes.default_moved,
    operators.reference_inside,
    operators.backend_named,
    operators.moved_with_model,
    operators.model_draws,
    refusals.unsupported,
    refusals.refused_by_itself,
    refusals.refused_by_error,
    refusals.own_error,
    refusals.raises_on_one_side,
    operators.chosen_by_version,
    operators.other_lines_run,
    operators.draws_otherwise,
    operators.made_of_operators,
    changes.variables_decide,
    ranges.range_overflow,
    ranges.right_when_smaller,
    ranges.masked_by_inputs,
    ranges.right_when_upcast,
    ranges.tolerance_too_tight,
    ranges.tolerance_too_loose,
    verdicts.stops_everywhere,
    verdicts.wrong_everywhere,
)

# A rule of the left does not count where one of the right gave a cause: that says which operator, or what else, it was.
NEARER: dict[Rule, tuple[Rule, ...]] = {
    operators.made_of_operators: (
        changes.reference_moved_under,
        changes.default_moved_under,
        operators.reference_inside,
        operators.moved_with_model,
        operators.draws_otherwise,
        operators.other_lines_run,
        operators.chosen_by_version,
        changes.compiled_code_moved,
    ),
    # Its code is not the same where other code was generated for it.
    changes.environment_confounder: (operators.chosen_by_version, changes.compiled_code_moved),
    operators.other_lines_run: (operators.chosen_by_version,),
    changes.reference_moved: (changes.compiled_code_moved,),
    ranges.right_when_upcast: (ranges.right_when_smaller,),
}

# Of a time the first rule that gives a cause counts: a machine that moved moves operators too.
OF_TIME: tuple[Callable[[TimeChange], Cause | None], ...] = (
    changes.component_of_time,
    costs.thread_count,
    costs.starts_threads,
    costs.clock_or_load,
    changes.sole_package_of_time,
    costs.lost_threads,
    costs.more_threads,
    costs.many_small_calls,
    costs.launch_overhead_on_gpu,
    costs.launch_overhead_on_cpu,
    costs.operator,
    costs.code,
)

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
    """By the rules, without what a nearer one makes void."""
    given = {rule: cause for rule in RULES if (cause := rule(case)) is not None}
    return [cause for rule, cause in given.items() if not any(other in given for other in NEARER.get(rule, ()))]


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
    """Whether another cause of the same rows, better shown, rests on an observation that excludes this one."""
    excluded = {name for each in other.ruled_out for name in each.causes}
    surer = cause.grade != other.grade and worse(cause.grade, other.grade) == cause.grade
    return surer and cause.cause in excluded and bool(set(cause.rows) & set(other.rows))


def _fault_is_not_why(cause: Cause, found: Sequence[Cause], case: CaseFacts) -> bool:
    """Whether an access out of bounds is not why the result moved. A variable that a thread meets too late is what a
    race makes of it. And where another build of the same sources was seen to bring the failure, wherever it ran, an
    access that a checker names is there; only one that the outputs were seen to follow is shown to be what fails."""
    if cause.cause != Kind.OUT_OF_BOUNDS:
        return False
    proven = {other.cause for other in found if other.grade == Grade.PROVEN}
    if case.accessed_what_outlived:
        return Kind.RACE in proven
    varied = any(spread.follows for _, spread in case.poison) or any(cell.offset_matters for cell in case.cells)
    return not varied and bool(proven.intersection(causes.CODE))


def _chosen_for_nothing(cause: Cause, found: Sequence[Cause]) -> bool:
    """A backend that may have been chosen, or one that was while PyTorch's others had no code for the call either."""
    refused = any((each.cause, each.grade) == (Kind.UNSUPPORTED_COMBINATION, Grade.PROVEN) for each in found)
    weak = cause.grade == Grade.POSSIBLE or (cause.grade == Grade.LIKELY and refused)
    return cause.cause == Kind.DEFAULT_BACKEND_MOVED and weak


def place(cause: Cause, found: Sequence[Cause], case: CaseFacts) -> int:
    """A reference that moved under a kernel that did not leads where agreement fell, and comes last where it rose: then
    it is no reason to look for one, and what is wrong is."""
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
    """Leads with their parts, most important first. What no rule explains is undecided. Where the versions compute
    different things, only a fault that the kernel has in any version is told beside that."""
    other = tuple(row for row in case.rows if changes.concerns(row))
    if other:
        rest = tuple(row for row in case.rows if row not in other)
        changed = CaseFacts(case.evidence, other)
        own = [graded(changed, cause) for cause in causes_given(changed) if cause.cause in OWN_FAULTS]
        lead = changes.meaning_changed(changed)
        return [*_joined(changed, [lead, *own]), *(correctness_causes(CaseFacts(case.evidence, rest)) if rest else [])]
    by_variables = case.variables_follow is Follows.FACTOR
    found = [graded(case, c) for c in causes_given(case) if not (c.cause in OF_OUTPUTS and by_variables)]
    found = [cause for cause in found if not any(explained_by(cause, other, case) for other in found)]
    found = [cause for cause in found if not any(excluded_by(cause, other) for other in found)]
    explained = {row for cause in found for row in cause.rows}
    if (undecided := verdicts.undecided(case)) is not None:
        open_rows = set(undecided.rows) - explained
        left = tuple(cell.row for cell in case.cells if cell.row.id in open_rows)
        found += [verdicts.undecided(CaseFacts(case.evidence, left)) or undecided] if left else []
    harmless = all(cause.cause in causes.REFERENCES for cause in found)
    healthy = [cause for cause in [verdicts.nothing_moved(case)] if harmless and cause is not None]
    return [*_joined(case, found), *healthy]


def _joined(case: CaseFacts, found: Sequence[Cause]) -> list[Cause]:
    """Causes that share rows become one with parts. A reference that moved under a kernel that did not leads: the
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
    """One cause for each group of a case's rows that were called in the same direction."""
    found = []
    for change in time_changes(cases):
        given = (cause for rule in OF_TIME if (cause := rule(change)) is not None)
        found.append(graded(change.case, next(given, None) or costs.unexplained(change), change))
    return found
