"""Whether two versions differ, from what was seen of each. Pure.

A pass rate is compared as a rate: Fisher's exact test, one input distribution at a time. Versions whose float64 results
of a problem differ by more than rounding compute different things, whatever their rates. A time is compared as a whole
interval: it differs where the interval of the ratio lies beyond the smallest effect that counts. Two versions that were
never in one round are compared over the good one, which each was timed with: the interval of their ratio is then that
of both intervals' worst corners, which is wide, and never too narrow.

What is not shown to differ is not thereby alike: where the rates, or the ratio itself, hint at a difference that so few
cannot show, more are asked for before it counts as none.

A version is looked at up to `LOOKS` times, each with more trials or replicates. Chance may do `ERROR_RATE` in all looks
together, over all cells and input distributions of one comparison (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from harness.schema.bisection_records import CellSeen, Rate
from harness.search.bisect.sketches import sketches_differ
from harness.stats.outputs import rates_differ
from harness.worker import protocol

ERROR_RATE = 0.05
LOOKS = 3
LEVEL = ERROR_RATE / LOOKS
TRIAL_FACTORS = (1, 2, 4)  # look by look
REPLICATES = (5, 10, 20)
HINT = 0.2  # a p below this, of one input distribution alone, is worth another look
Cells = Collection[CellSeen]


def _find_p_value(rates: Mapping[str, Rate], others: Mapping[str, Rate]) -> float:
    """Return the smallest over all input distributions that both have."""
    pairs = [(rates[name], others[name]) for name in rates.keys() & others.keys()]
    return min((rates_differ(a.passed, a.trials, b.passed, b.trials) for a, b in pairs), default=1.0)


def _pair(cells: Cells, others: Cells) -> list[tuple[CellSeen, CellSeen]]:
    """Return the cells that were seen of both versions."""
    by_name = {seen.cell: seen for seen in others}
    return [(seen, by_name[seen.cell]) for seen in cells if seen.cell in by_name]


def find_differing(cells: Cells, others: Cells) -> list[str]:
    """Return the cells in which two versions are shown to differ."""
    pairs = _pair(cells, others)
    comparisons = sum(max(1, len(cell.rates)) for cell, _ in pairs)
    return [cell.cell for cell, other in pairs if _differ(cell, other, LEVEL / comparisons)]


def _differ(cell: CellSeen, other: CellSeen, level: float) -> bool:
    statuses = {cell.status, other.status}
    if protocol.NOT_RUN in statuses:  # what the harness could not do says nothing of a version
        return False
    if not statuses <= set(protocol.RAN):  # a version that refuses is not like one that answers
        return len(statuses) > 1
    if cell.low and cell.high and other.low and other.high:
        beyond = 1 + cell.min_effect
        return other.low / cell.high > beyond or other.high / cell.low < 1 / beyond
    return _find_p_value(cell.rates, other.rates) <= level or sketches_differ(cell.truths, other.truths)


def _hint_at_difference(cells: Cells, others: Cells) -> bool:
    """Return whether two versions look as if more trials or replicates might show a difference."""
    for cell, other in _pair(cells, others):
        if _find_p_value(cell.rates, other.rates) <= HINT:
            return True
        if cell.ratio and other.ratio and abs(math.log(cell.ratio / other.ratio)) > math.log1p(cell.min_effect):
            return True
    return False


def is_clear(cells: Cells, left: Cells, right: Cells, *, last: bool) -> bool:
    """Return whether what was seen of a version tells on which side of a step it lies. `left` and `right` were seen of
    its neighbours; at the `last` look a hint counts for nothing."""
    differs = [bool(find_differing(cells, other)) for other in (left, right)]
    if any(differs) or not find_differing(left, right):
        hints = [
            not differ and _hint_at_difference(cells, other)
            for differ, other in zip(differs, (left, right), strict=True)
        ]
        return last or not any(hints)
    return False
