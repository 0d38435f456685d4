"""The end result of a run, and how far two are apart. Pure.

The end result is the exception and exit code, the numbers that left PyTorch, in their order, the tensors that the
script still held when it ended, and the last outputs. Tensors are paired by type and by the line that wrote them. What
has no counterpart is compared by what was computed from it. Where nothing was, it is a difference if both versions have
such tensors, and none if one version has, such as a new counter of an optimiser.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.trace.align import Pair
from harness.trace.model import Sketch, Trace


@dataclass(frozen=True)
class Held:
    """A tensor of the end result."""

    type: str
    digest: str
    line: str  # that wrote it, with the phase
    is_read: bool  # by an operator
    sketch: Sketch | None = None


@dataclass(frozen=True)
class Result:
    """How a run ended, and what it left."""

    failure: str
    numbers: tuple[str, ...]
    tensors: tuple[Held, ...]

    def equals(self, other: Result) -> bool:
        """Return whether both are the same, bit for bit."""
        pairs = pair_tensors(self, other)
        return (
            (self.failure, self.numbers) == (other.failure, other.numbers)
            and all(self.tensors[i].digest == other.tensors[j].digest for i, j in pairs.equal_types)
            and pairs.are_complete
        )


@dataclass(frozen=True)
class TensorPairs:
    """Which tensors correspond to each other, and those of each side that have no counterpart."""

    equal_types: list[Pair]
    good_only: list[Held]
    bad_only: list[Held]

    @property
    def are_complete(self) -> bool:
        """Return whether nothing is left that would have to be compared."""
        return all(held.is_read for held in self.good_only) or all(held.is_read for held in self.bad_only)


def find_result(trace: Trace) -> Result:
    """Return the end result of a run."""
    read = trace.find_read_outputs()
    tensors = []
    for slot in trace.find_final_outputs():
        value, operator = trace.output(slot), trace.operators[slot[0]]
        line = f"{operator.phase} {operator.line}"
        tensors.append(Held(value.type, value.digest, line, slot in read, trace.sketch(value)))
    numbers = tuple(operator.value for operator in trace.operators if operator.value)
    return Result(trace.end.failure, numbers, tuple(tensors))


def pair_tensors(good: Result, bad: Result) -> TensorPairs:
    """Pair tensors by type and line, else by type, in their order. Where one side has more of them, equal ones are
    paired first."""
    pairs, left, right = list[Pair](), list(range(len(good.tensors))), list(range(len(bad.tensors)))
    for by_line in (True, False):
        groups = _group(good, left, by_line), _group(bad, right, by_line)
        for key in groups[0].keys() & groups[1].keys():
            mine, theirs = groups[0][key], groups[1][key]
            if len(mine) != len(theirs):
                pairs += _take_equal(good, bad, mine, theirs)
            pairs += zip(mine, theirs, strict=False)
        paired = dict(pairs)
        left = [i for i in left if i not in paired]
        right = sorted(set(right).difference(paired.values()))
    return TensorPairs(sorted(pairs), [good.tensors[i] for i in left], [bad.tensors[j] for j in right])


def _group(result: Result, places: Iterable[int], by_line: bool) -> dict[tuple[str, str], list[int]]:
    groups = defaultdict[tuple[str, str], list[int]](list)
    for place in places:
        held = result.tensors[place]
        groups[held.type, held.line if by_line else ""].append(place)
    return groups


def _take_equal(good: Result, bad: Result, left: list[int], right: list[int]) -> Iterable[Pair]:
    """Yield pairs of equal tensors, and take them out of both lists."""
    for i in list(left):
        j = next((j for j in right if bad.tensors[j].digest == good.tensors[i].digest), None)
        if j is not None:
            left.remove(i)
            right.remove(j)
            yield i, j


def distance(one: Result, other: Result) -> float:
    """Return the larger of the two `distances`."""
    return max(distances(one, other))


def distances(one: Result, other: Result) -> tuple[float, float]:
    """Return the largest relative difference of a number, and of a tensor that was left; infinite where they cannot be
    paired, as where the runs ended in other ways."""
    pairs = pair_tensors(one, other)
    if one.failure != other.failure or not pairs.are_complete:
        return math.inf, math.inf
    if len(one.numbers) != len(other.numbers):
        return math.inf, math.inf
    tensors = 0.0
    for i, j in pairs.equal_types:
        left, right = one.tensors[i], other.tensors[j]
        if left.digest != right.digest:
            tensors = max(tensors, compare_sketches(left.sketch, right.sketch))
    return compare_numbers(one.numbers, other.numbers), tensors


def compare_numbers(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the largest relative difference; infinite where there is not the same count of them."""
    if len(one) != len(other):
        return math.inf
    return max(map(_compare_number, one, other), default=0.0)


def _compare_number(one: str, other: str) -> float:
    if one == other:
        return 0.0
    try:
        a, b = float(one), float(other)
    except ValueError:
        return math.inf
    return abs(a - b) / max(abs(a), abs(b)) if math.isfinite(a) and math.isfinite(b) else math.inf


def compare_sketches(one: Sketch | None, other: Sketch | None) -> float:
    """Return the norm of the difference over the norm of the first, estimated; infinite where one is not finite."""
    if one is None or other is None:
        return math.inf
    with np.errstate(all="ignore"):
        difference, scale = float(np.linalg.norm(one - other)), float(np.linalg.norm(one))
    if not math.isfinite(difference):
        return math.inf
    return difference / scale if scale else (0.0 if not difference else math.inf)
