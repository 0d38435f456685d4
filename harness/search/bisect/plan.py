"""Which version is asked next, and what follows from what was seen. Pure.

Versions stand in order, the good end first and the bad end last. What is known of each is its label: versions that are
alike share one. None: not asked yet. UNKNOWN: it cannot be installed, or could not be told. Between two neighbours of
other labels lies a step, and the middle of what is not asked there is next; so two steps are both found as soon as one
version between them is unlike both ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

UNKNOWN = -1
GOOD = 0
Labels = Sequence[int | None]


def most_environments(versions: int) -> int:
    """How many environments a bisection of so many versions needs at most, where one step explains it: both ends, and
    each further one halves what is left."""
    return math.ceil(math.log2(versions)) + 2


def _known(labels: Labels) -> list[tuple[int, int]]:
    """(index, label) of the versions of which something is known."""
    return [(index, label) for index, label in enumerate(labels) if label is not None and label != UNKNOWN]


def next_version(labels: Labels, *, every: bool = False) -> int | None:
    """The index of the version to ask next, the leftmost step first; None where nothing is left to ask.

    Both ends must be known, unless nothing can be known. With `every`, versions between like neighbours are asked too,
    after the steps are found.
    """
    for end in (0, len(labels) - 1):
        if labels[end] is None:
            return end
    if UNKNOWN in (labels[0], labels[-1]):
        return None
    apart: list[int] = []
    alike: list[int] = []
    for (left, one), (right, other) in pairwise(_known(labels)):
        not_asked = [index for index in range(left + 1, right) if labels[index] is None]
        if not_asked:
            (apart if one != other else alike).append(not_asked[len(not_asked) // 2])
    return next(iter([*apart, *(alike if every else [])]), None)


def neighbours(labels: Labels, index: int) -> tuple[int, int]:
    """Labels of the nearest known versions on both sides."""
    known = _known(labels)
    before = [label for place, label in known if place < index]
    return before[-1], next(label for place, label in known if place > index)


def steps(labels: Labels) -> list[tuple[int, int]]:
    """(last before, first after) of every change that was found."""
    return [(left, right) for (left, one), (right, other) in pairwise(_known(labels)) if one != other]


def is_monotonic(labels: Labels) -> bool:
    """Whether no version is like an earlier one again, after one that was not."""
    changes = [label for label, _ in groupby(label for _, label in _known(labels))]
    return len(changes) == len(set(changes))
