"""Whether two versions differ, from what was seen of each; `None` where that asks for more. Pure.

A pass rate is compared as a rate: Fisher's exact test, recipe by recipe. Versions whose float64 results of a problem
differ by more than rounding compute different things, whatever their rates. A time is compared as a whole interval: it
differs where the interval of the ratio (`harness.search.ratio`) lies beyond the smallest effect that counts. Two
versions that were never in one block are compared over the good one, which each was timed with: the interval of their
ratio is then that of both intervals' worst corners, which is wide, and never too narrow.

What is not shown to differ is not thereby alike: where the rates, or the ratio itself, hint at a difference that so few
cannot show, more are asked for before it counts as none.

A version is looked at up to `LOOKS` times, each with more trials or launches. Chance may do `ERROR_RATE` in all looks
together, over all cells and recipes of one comparison (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from harness.schema.bisection_records import Aspect, CellSeen, Rate
from harness.search.bisect.sketches import sketches_differ
from harness.stats.outputs import rates_differ
from harness.worker import protocol

ERROR_RATE = 0.05
LOOKS = 3
LEVEL = ERROR_RATE / LOOKS
TRIAL_FACTORS = (1, 2, 4)
HINT = 0.2  # a p below this, of one recipe alone, is worth another look
MEASURED = protocol.RAN


def launch_counts(cells: int) -> tuple[int, ...]:
    """Launches of each version at each look: the fewest that can decide for so many cells, then 2 and 4 times that."""
    fewest = 2
    while 2 / math.comb(2 * fewest, fewest) > LEVEL / cells:
        fewest += 1
    return tuple(fewest * factor for factor in TRIAL_FACTORS)


def _p_value(one: Mapping[str, Rate], other: Mapping[str, Rate]) -> float:
    """The smallest over all recipes."""
    pairs = [(one[recipe], other[recipe]) for recipe in one.keys() & other.keys()]
    return min((rates_differ(a.passed, a.trials, b.passed, b.trials) for a, b in pairs), default=1.0)


def _times_differ(one: CellSeen, other: CellSeen, min_effect: float) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    beyond = 1 + min_effect
    return other.low / one.high > beyond or other.high / one.low < 1 / beyond


def _pairs(one: Collection[CellSeen], other: Collection[CellSeen]) -> list[tuple[CellSeen, CellSeen]]:
    """The cells that were seen of both versions."""
    others = {seen.cell: seen for seen in other}
    return [(seen, others[seen.cell]) for seen in one if seen.cell in others]


def differing(
    one: Collection[CellSeen], other: Collection[CellSeen], what: Aspect, min_effect: Mapping[str, float]
) -> list[str]:
    """The cells in which two versions are shown to differ."""
    pairs = _pairs(one, other)
    comparisons = sum(max(1, len(left.rates)) for left, _ in pairs)
    found = []
    for left, right in pairs:
        measured = [seen.status in MEASURED for seen in (left, right)]
        if not all(measured):
            # Where there is no time, no time differs; but a version that refuses is not like one that answers.
            differ = what == "correctness" and (any(measured) or left.status != right.status)
        elif what == "correctness":
            differ = _p_value(left.rates, right.rates) <= LEVEL / comparisons
            differ |= sketches_differ(left.truths, right.truths)
        else:
            differ = _times_differ(left, right, min_effect[left.cell.rpartition("/")[2]])
        if differ:
            found.append(left.cell)
    return found


def hinting(
    one: Collection[CellSeen], other: Collection[CellSeen], what: Aspect, min_effect: Mapping[str, float]
) -> bool:
    """Whether two versions that are not shown to differ look as if more trials or launches might show it."""
    for left, right in _pairs(one, other):
        if what == "correctness" and _p_value(left.rates, right.rates) <= HINT:
            return True
        if what == "latency" and left.ratio is not None and right.ratio is not None:
            beyond = math.log1p(min_effect[left.cell.rpartition("/")[2]])
            if abs(math.log(left.ratio / right.ratio)) > beyond:
                return True
    return False


def judge(
    seen: Collection[CellSeen],
    first: Mapping[int, Collection[CellSeen]],
    neighbours: tuple[int, int],
    what: Aspect,
    min_effect: Mapping[str, float],
    *,
    last: bool,
) -> int | None:
    """The label of what was seen of a version, by what was `first` seen of each label; None: more is needed, or, at
    the last look, it cannot be told."""
    differs = {label: bool(differing(seen, cells, what, min_effect)) for label, cells in first.items()}
    if not last and any(not differs[label] and hinting(seen, first[label], what, min_effect) for label in neighbours):
        return None
    return classify(differs, *neighbours)


def classify(differs: Mapping[int, bool], left: int, right: int) -> int | None:
    """The label of a version between neighbours of these labels, by whether it `differs` from each label that is known;
    None: more is needed.

    It is like the one neighbour that it is not shown to differ from. Where it differs from both it is like the one
    other that it does not differ from, or like none that was seen.
    """
    alike = [label for label in dict.fromkeys((left, right)) if not differs[label]]
    if alike:
        return alike[0] if len(alike) == 1 else None
    others = [label for label in differs if not differs[label]]
    return others[0] if len(others) == 1 else max(differs) + 1
