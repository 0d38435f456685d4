"""Why times moved, where it is a kernel's own code or nobody can say; and times that lean, uncalled. Pure."""

from __future__ import annotations

from reports import model
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.code import build_differences
from reports.attribute.making import excluded, listed, make
from reports.attribute.model import BUILD_MOVED, KERNEL_CODE_MOVED, LATENCY, STRONG, SUGGESTIVE, UNDECIDED, Cause
from reports.attribute.profiles import profile_figure, profiled
from reports.attribute.threads import threads_ruled_out
from reports.attribute.timed import Timed, differences_seen
from reports.compare.factors import DIFFERS, SAME
from reports.model import Latency, Seen


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


def leans(latency: Latency) -> bool:
    """Whether the whole interval lies beyond the smallest effect that counts, and only the test is not sure enough."""
    if latency.verdict != model.UNDECIDED or latency.low is None or latency.high is None:
        return False
    bound = 1 + latency.min_effect
    return latency.low > bound or latency.high < 1 / bound


def hint(case: Case) -> Cause | None:
    """Times that lean one way and were not called: no cause is given, and nobody shall believe that they stood."""
    leaning = [(cell, timed) for cell in case.cells for timed in cell.row.timed if leans(timed)]
    return _hint(case, leaning) if case.is_kernel and leaning else None


def _hint(case: Case, leaning: list[tuple[Cell, Latency]]) -> Cause:
    cells = list(dict.fromkeys(cell for cell, _ in leaning))
    most = max(len(timed.this.medians_us) for _, timed in leaning)
    return make(
        case,
        UNDECIDED,
        UNDECIDED,
        f"The time of {case.kernel} may have moved on {listed(cell.workload for cell in cells)}: its interval lies "
        "beyond what counts as a change, and so many launches cannot make it certain.",
        cells,
        [Seen(text=f"{cell.workload}: {timed.why}", record=timed.this.record) for cell, timed in leaning[:4]],
        about=LATENCY,
        command=f"{case.command(cells)} --launches {max(20, 2 * most)}",
        gist=("leans",),
    )
