"""Which causes there are, and which of two leads: every rule, and every table of precedence and rivalry. Pure.

Rules do not know of each other. Which of two says more of the same fault is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reports.attribute import (
    code,
    composed,
    memory,
    operators,
    placement,
    ranges,
    recipes,
    references,
    repeats,
    support,
    threads,
    timing,
    tolerances,
    variables,
    verdicts,
    wrapped,
)
from reports.attribute.cases import Case
from reports.attribute.grading import OF_OUTPUTS
from reports.attribute.machine import clock_or_load
from reports.attribute.model import (
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
    UNSUPPORTED_COMBINATION,
    WRONG_EVERYWHERE,
    WRONG_STREAM,
    Cause,
    worse,
)
from reports.attribute.timed import Timed
from reports.compare.factors import SAME

Rule = Callable[[Case], Cause | None]

RULES: tuple[Rule, ...] = (
    placement.wrong_stream,
    code.inputs_moved,
    code.broken_environment,
    code.build_failed,
    code.build_moved,
    code.kernel_code_moved,
    code.environment_confounder,
    memory.out_of_bounds,
    memory.uninitialised_shared,
    memory.uninitialised_global,
    memory.uninitialised_host,
    repeats.race,
    repeats.not_repeatable,
    repeats.writes_inputs,
    repeats.drawn_once,
    repeats.predecessor,
    repeats.keeps_state,
    references.reference_moved_under,
    references.default_moved_under,
    references.reference_moved,
    references.default_moved,
    wrapped.reference_inside,
    wrapped.backend_named,
    wrapped.computed_from_else,
    wrapped.drawn_anew,
    support.unsupported,
    support.refused_by_itself,
    support.refused_by_error,
    support.raises_on_one_side,
    composed.takes_another_way,
    composed.draws_otherwise,
    composed.made_of_operators,
    variables.variables_decide,
    recipes.range_overflow,
    recipes.out_of_range,
    recipes.masked_by_inputs,
    ranges.right_when_wider,
    ranges.right_in_wider_integers,
    placement.on_the_current_gpu_alone,
    ranges.count_leaves_its_type,
    tolerances.tolerance_too_tight,
    tolerances.tolerance_too_loose,
    verdicts.wrong_everywhere,
)

# A rule of the left is not heard where one of the right gave a cause: that says which operator, or what else, it was.
NEARER: dict[Rule, tuple[Rule, ...]] = {
    composed.made_of_operators: (
        references.reference_moved_under,
        references.default_moved_under,
        wrapped.reference_inside,
        wrapped.computed_from_else,
        composed.draws_otherwise,
        composed.takes_another_way,
    ),
    ranges.right_when_wider: (recipes.out_of_range,),
}

# Of a time the first rule that gives a cause is heard: a machine that moved moves operators too.
OF_TIME: tuple[Callable[[Timed], Cause | None], ...] = (
    threads.thread_count,
    threads.starts_threads,
    clock_or_load,
    threads.lost_threads,
    threads.more_threads,
    operators.launch_overhead,
    operators.operator,
    timing.code,
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


def heard(case: Case) -> list[Cause]:
    """What the rules give, without those that a nearer one makes void."""
    given = {rule: cause for rule in RULES if (cause := rule(case)) is not None}
    return [cause for rule, cause in given.items() if not any(other in given for other in NEARER.get(rule, ()))]


def explained(case: Case, cause: Cause, other: Cause) -> bool:
    if cause is other or cause.cause not in EXPLAINS.get(other.cause, ()):
        return False
    if other.grade == SUGGESTIVE and cause.grade != SUGGESTIVE:
        return False  # what is better shown is not explained away by what may be so
    decided = cause.grade != STRONG or variables.bring(case)
    if cause.cause == ENVIRONMENT_CONFOUNDER and other.cause != INPUTS_MOVED and decided:
        return False
    return set(cause.rows) <= set(other.rows)


def ruled_out(cause: Cause, other: Cause) -> bool:
    """Whether another cause of the same rows, better shown, rests on an observation that excludes this one."""
    excluded = {name for each in other.ruled_out for name in each.causes}
    surer = cause.grade != other.grade and worse(cause.grade, other.grade) == cause.grade
    return surer and cause.cause in excluded and bool(set(cause.rows) & set(other.rows))


def _chosen_for_nothing(cause: Cause, found: Sequence[Cause]) -> bool:
    """A backend that may have been chosen, or one that was while PyTorch's others had no code for the call either."""
    refused = any((each.cause, each.grade) == (UNSUPPORTED_COMBINATION, DECISIVE) for each in found)
    return cause.cause == DEFAULT_BACKEND_MOVED and (cause.grade == SUGGESTIVE or (cause.grade == STRONG and refused))


def place(case: Case, cause: Cause, found: Sequence[Cause]) -> int:
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
