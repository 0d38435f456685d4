"""Which version is asked next, and where something changed. Pure.

Versions stand in order, the good end first and the bad end last, and are named by their place. `told` are those that
were compared, `closed` those that cannot be: not installable, or inconclusive. Between two neighbours that differ lies
a step, and the middle of what is open there is next. So two steps are both found as soon as one version between them is
unlike both ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import groupby, pairwise

Differ = Callable[[int, int], bool]  # whether two versions are shown to differ


def most_environments(versions: int) -> int:
    """Return how many environments a bisection of so many versions needs at most, where one step explains it."""
    return math.ceil(math.log2(versions)) + 2


def next_version(told: Collection[int], closed: Collection[int], differ: Differ, *, every: bool = False) -> int | None:
    """Return the version to ask next, of the leftmost step first; None where nothing is left to ask.

    With `every`, versions between neighbours that do not differ are asked too, after the steps are found.
    """
    apart: list[int] = []
    alike: list[int] = []
    for left, right in pairwise(sorted(told)):
        between = [version for version in range(left + 1, right) if version not in closed]
        if between:
            (apart if differ(left, right) else alike).append(between[len(between) // 2])
    candidates = [*apart, *alike] if every else apart
    return candidates[0] if candidates else None


def find_steps(told: Collection[int], differ: Differ) -> list[tuple[int, int]]:
    """Return (last before, first after) of every change."""
    return [(left, right) for left, right in pairwise(sorted(told)) if differ(left, right)]


def is_monotonic(verdicts: Iterable[Hashable]) -> bool:
    """Return whether no version is like an earlier one again, after one that was not."""
    changes = [verdict for verdict, _ in groupby(verdicts)]
    return len(changes) == len(set(changes))
