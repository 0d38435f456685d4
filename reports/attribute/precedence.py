"""Which rules there are, which of two causes leads, and what becomes of the causes of one case. Pure.

Rules do not know of each other. Which of two says more of the same fault is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause, combined, rank, worse
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.swaps import VARIABLES
from reports.attribute.facts.times import TimeChange, time_changes
from reports.attribute.grading import OF_OUTPUTS, graded
from reports.attribute.rules import (
    build,
    calls,
    compiled,
    components,
    inputs,
    latency,
    loading,
    meaning,
    memory,
    operators,
    references,
    support,
    threads,
    tolerances,
    verdicts,
)
from reports.compare.factors import SAME

Rule = Callable[[CaseFacts], Cause | None]

RULES: tuple[Rule, ...] = (
    calls.wrong_stream,
    build.inputs_moved,
    build.broken_environment,
    loading.does_not_load,
    build.does_not_build,
    build.build_failed,
    build.code_moved,
    build.environment_confounder,
    components.component_moved,
    components.sole_package,
    compiled.compiled_code_moved,
    memory.out_of_bounds,
    memory.uninitialised_shared,
    memory.uninitialised_global,
    memory.uninitialised_host,
    memory.race,
    calls.not_repeatable,
    calls.writes_inputs,
    calls.drawn_once,
    calls.predecessor,
    calls.keeps_state,
    references.reference_moved_under,
    references.default_moved_under,
    references.reference_moved,
    references.default_moved,
    operators.reference_inside,
    operators.backend_named,
    operators.moved_with_model,
    operators.model_draws,
    support.unsupported,
    support.refused_by_itself,
    support.refused_by_error,
    support.own_error,
    support.raises_on_one_side,
    operators.chosen_by_version,
    operators.other_lines_run,
    operators.draws_otherwise,
    operators.made_of_operators,
    build.variables_decide,
    inputs.range_overflow,
    inputs.right_when_smaller,
    inputs.masked_by_inputs,
    inputs.right_when_upcast,
    tolerances.tolerance_too_tight,
    tolerances.tolerance_too_loose,
    verdicts.stops_everywhere,
    verdicts.wrong_everywhere,
)

# A rule of the left does not count where one of the right gave a cause: that says which operator, or what else, it was.
NEARER: dict[Rule, tuple[Rule, ...]] = {
    operators.made_of_operators: (
        references.reference_moved_under,
        references.default_moved_under,
        operators.reference_inside,
        operators.moved_with_model,
        operators.draws_otherwise,
        operators.other_lines_run,
        operators.chosen_by_version,
        compiled.compiled_code_moved,
    ),
    # Its code is not the same where other code was generated for it.
    build.environment_confounder: (operators.chosen_by_version, compiled.compiled_code_moved),
    operators.other_lines_run: (operators.chosen_by_version,),
    references.reference_moved: (compiled.compiled_code_moved,),
    inputs.right_when_upcast: (inputs.right_when_smaller,),
}

# Of a time the first rule that gives a cause counts: a machine that moved moves operators too.
OF_TIME: tuple[Callable[[TimeChange], Cause | None], ...] = (
    components.component_of_time,
    threads.thread_count,
    threads.starts_threads,
    latency.clock_or_load,
    components.sole_package_of_time,
    threads.lost_threads,
    threads.more_threads,
    latency.many_small_calls,
    latency.launch_overhead_on_gpu,
    latency.launch_overhead_on_cpu,
    latency.operator,
    latency.code,
)

# A cause of the left explains the right away on the rows that both have: it says more of the same fault.
FAILS_ALWAYS = (causes.WRONG_EVERYWHERE,)
FAILS_ON_SOME = (*FAILS_ALWAYS, causes.MASKED_BY_INPUTS, causes.RANGE_OVERFLOW)
OWN_FAULTS = (*causes.MEMORY, causes.WRONG_STREAM, causes.PREDECESSOR_SENSITIVITY)
SURROUNDINGS = (causes.ENVIRONMENT_CONFOUNDER, causes.COMPONENT_MOVED)
FAILS_BY_LITTLE = (*FAILS_ON_SOME, causes.TOLERANCE_TOO_TIGHT)
EXPLAINS = {
    # A kernel that is PyTorch's own operator has that operator's bits, whatever its object code is.
    causes.REFERENCE_MOVED: causes.CODE,
    causes.DEFAULT_BACKEND_MOVED: causes.CODE,
    # Where a package alone was exchanged, what PyTorch and the code are was held.
    causes.COMPONENT_MOVED: (
        *causes.CODE,
        *causes.REFERENCES,
        causes.ENVIRONMENT_CONFOUNDER,
        causes.UNSUPPORTED_COMBINATION,
    ),
    causes.INPUTS_MOVED: (*causes.MOVERS, *FAILS_BY_LITTLE),
    causes.UNSUPPORTED_COMBINATION: FAILS_ALWAYS,
    causes.WRONG_STREAM: FAILS_ALWAYS,
    causes.MASKED_BY_INPUTS: FAILS_ALWAYS,
    causes.RANGE_OVERFLOW: (*FAILS_ALWAYS, causes.MASKED_BY_INPUTS),
    causes.TOLERANCE_TOO_TIGHT: FAILS_ON_SOME,
    causes.PREDECESSOR_SENSITIVITY: (*FAILS_ON_SOME, *SURROUNDINGS),
    **dict.fromkeys(causes.MEMORY, (*FAILS_BY_LITTLE, *SURROUNDINGS)),
}


def causes_given(case: CaseFacts) -> list[Cause]:
    """By the rules, without what a nearer one makes void."""
    given = {rule: cause for rule in RULES if (cause := rule(case)) is not None}
    return [cause for rule, cause in given.items() if not any(other in given for other in NEARER.get(rule, ()))]


def explained_by(cause: Cause, other: Cause, case: CaseFacts) -> bool:
    if cause is other or cause.cause not in EXPLAINS.get(other.cause, ()):
        return False
    if other.grade == SUGGESTIVE and cause.grade != SUGGESTIVE:
        return False  # what is better shown is not explained away by what may be so
    decided = cause.grade != STRONG or case.fault_comes_with_variables
    if cause.cause in SURROUNDINGS and other.cause not in (causes.INPUTS_MOVED, causes.COMPONENT_MOVED) and decided:
        return False
    if other.cause == causes.COMPONENT_MOVED and cause.under:
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
    if cause.cause != causes.OUT_OF_BOUNDS:
        return False
    proven = {other.cause for other in found if other.grade == DECISIVE}
    if memory.access_outlived(case):
        return causes.RACE in proven
    varied = any(spread.follows for _, spread in case.poison) or any(cell.offset_matters for cell in case.cells)
    return not varied and bool(proven.intersection(causes.CODE))


def _chosen_for_nothing(cause: Cause, found: Sequence[Cause]) -> bool:
    """A backend that may have been chosen, or one that was while PyTorch's others had no code for the call either."""
    refused = any((each.cause, each.grade) == (causes.UNSUPPORTED_COMBINATION, DECISIVE) for each in found)
    weak = cause.grade == SUGGESTIVE or (cause.grade == STRONG and refused)
    return cause.cause == causes.DEFAULT_BACKEND_MOVED and weak


def place(cause: Cause, found: Sequence[Cause], case: CaseFacts) -> int:
    """A reference that moved under a kernel that did not leads where agreement fell, and comes last where it rose: then
    it is no reason to look for one, and what is wrong is."""
    if cause.cause in OF_OUTPUTS and cause.grade == SUGGESTIVE and case.variables_matter:
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
    other = tuple(row for row in case.rows if meaning.concerns(row))
    if other:
        rest = tuple(row for row in case.rows if row not in other)
        changed = CaseFacts(case.evidence, other)
        own = [graded(changed, cause) for cause in causes_given(changed) if cause.cause in OWN_FAULTS]
        lead = meaning.meaning_changed(changed)
        return [*_joined(changed, [lead, *own]), *(correctness_causes(CaseFacts(case.evidence, rest)) if rest else [])]
    every = causes_given(case)
    asides = [cause for cause in every if cause.aside]
    by_variables = case.goes_with_variables == VARIABLES
    found = [graded(case, c) for c in every if not c.aside and not (c.cause in OF_OUTPUTS and by_variables)]
    found = [cause for cause in found if not any(explained_by(cause, other, case) for other in found)]
    found = [cause for cause in found if not any(excluded_by(cause, other) for other in found)]
    explained = {row for cause in found for row in cause.rows}
    if (undecided := verdicts.undecided(case)) is not None:
        open_rows = set(undecided.rows) - explained
        left = tuple(cell.row for cell in case.cells if cell.row.id in open_rows)
        found += [verdicts.undecided(CaseFacts(case.evidence, left)) or undecided] if left else []
    harmless = all(cause.cause in causes.REFERENCES for cause in found)
    healthy = [cause for cause in [verdicts.nothing_moved(case)] if harmless and cause is not None]
    return [*_joined(case, found), *healthy, *asides]


def _joined(case: CaseFacts, found: Sequence[Cause]) -> list[Cause]:
    """Causes that share rows become one with parts. A reference that moved under a kernel that did not leads: the
    kernel's own fault is then the part that was there before."""
    leads: list[Cause] = []
    for cause in sorted(found, key=lambda cause: (place(cause, found, case), rank(cause))):
        at = next((number for number, lead in enumerate(leads) if set(lead.rows) & set(cause.rows)), None)
        if at is None or causes.UNDECIDED in (cause.cause, leads[at].cause):
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
        found.append(graded(change.case, next(given, None) or latency.unexplained(change), change))
    return found
