"""Times that lean one way and were not called: no cause is given for them, and nobody shall believe that they stood."""

from __future__ import annotations

from collections.abc import Sequence

from reports import model
from reports.causes.cases import Case
from reports.causes.cells import Cell
from reports.causes.making import listed, make
from reports.causes.model import LATENCY, UNDECIDED, Cause
from reports.model import Latency, Seen


def leans(latency: Latency) -> bool:
    """Whether the whole interval lies beyond the smallest effect that counts, and only the test is not sure enough."""
    if latency.verdict != model.UNDECIDED or latency.low is None or latency.high is None:
        return False
    bound = 1 + latency.min_effect
    return latency.low > bound or latency.high < 1 / bound


def hints(cases: Sequence[Case]) -> list[Cause]:
    """One for each kernel whose time leans, over its workloads."""
    found = []
    for case in cases:
        leaning = [(cell, timed) for cell in case.cells for timed in cell.row.timed if leans(timed)]
        if case.is_kernel and leaning:
            found.append(_hint(case, leaning))
    return found


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
