"""Why times moved: the rules in their order, and what is left to a kernel's own code, or to nobody. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reports.causes.cases import Case
from reports.causes.code import build_differences
from reports.causes.grading import graded
from reports.causes.machine import clock_or_load
from reports.causes.making import excluded
from reports.causes.model import BUILD_MOVED, KERNEL_CODE_MOVED, STRONG, SUGGESTIVE, UNDECIDED, Cause
from reports.causes.operators import operator
from reports.causes.overhead import launch_overhead
from reports.causes.profiles import profile_figure, profiled
from reports.causes.threads import lost_threads, more_threads, starts_threads, thread_count, threads_ruled_out
from reports.causes.timed import Timed, differences_seen, timed_groups
from reports.evidence import Evidence
from reports.factors import DIFFERS, SAME
from reports.model import Seen


def code(timed: Timed) -> Cause | None:
    """A kernel alone moved, and its machine code with it."""
    case = timed.case
    if not case.is_kernel or case.code.state != DIFFERS:
        return None
    differences = build_differences(case)
    cause = BUILD_MOVED if differences else KERNEL_CODE_MOVED
    why = "it was built otherwise here" if differences else "its source compiles to other machine code here"
    return timed.make(
        cause,
        STRONG if timed.around.steady else SUGGESTIVE,
        f"{case.subject} is {timed.extent}, and {why}.",
        [case.code.seen, *differences, *_wrong_output(timed)],
        [timed.machine_ruled_out, threads_ruled_out(timed)],
        [profile_figure(*found)] if (found := profiled(timed)) is not None else (),
        command=case.explain(timed.cells),
    )


def _wrong_output(timed: Timed) -> list[Seen]:
    for cell in timed.cells:
        latency = timed.latency(cell)
        if latency.this.wrong_output or latency.baseline.wrong_output:
            why = latency.this.message or latency.baseline.message
            text = "the output that was timed is wrong, so the time is not that of the problem"
            return [Seen(text=text + (f": {why}" if why else ""), record=cell.record)]
    return []


def unexplained(timed: Timed) -> Cause:
    case = timed.case
    known = case.is_kernel and case.code.state == SAME
    why = "its machine code is the same" if known else "no profile of both environments shows which part of it"
    return timed.make(
        UNDECIDED,
        UNDECIDED,
        f"The records do not tell why {case.subject} is {timed.extent}: {why}.",
        [*([case.code.seen] if case.is_kernel else []), *_wrong_output(timed), *differences_seen(case)[:4]],
        [timed.machine_ruled_out, excluded("its code", case.code.seen) if known else None],
        command=case.explain(timed.cells),
        gist=("unexplained", case.subject, why),
    )


# In this order: a machine that moved moves operators too.
RULES: tuple[Callable[[Timed], Cause | None], ...] = (
    thread_count,
    starts_threads,
    clock_or_load,
    lost_threads,
    more_threads,
    launch_overhead,
    operator,
    code,
)


def explain_times(evidence: Evidence, cases: Sequence[Case]) -> list[Cause]:
    """One cause for each group of a case's rows that were called in the same direction."""
    found = []
    for timed in timed_groups(evidence, cases):
        causes = (cause for rule in RULES if (cause := rule(timed)) is not None)
        cause = next(causes, None) or unexplained(timed)
        found.append(graded(timed.case, cause, timed))
    return found
