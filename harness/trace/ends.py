"""What a run came to, and how far two are apart. Pure.

The end result is the exception and exit code, the numbers that left PyTorch, in their order, the tensors that the
script still held when it ended, the last outputs, and what it printed. Tensors are paired by type and by the line that
wrote them. What has no counterpart is compared by what was computed from it; where nothing was, it is a difference if
both versions have such tensors, and none if one has, such as a new counter of an optimiser.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.trace.align import Pair
from harness.trace.localise import last_outputs, places_read
from harness.trace.model import Place, Trace

Sketch = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Result:
    ended: tuple[int, str]  # exit code and exception
    numbers: tuple[str, ...]
    digests: tuple[tuple[str, str], ...]  # type and digest of what was left
    lines: tuple[str, ...]  # that wrote it, with the phase
    read: tuple[bool, ...]  # whether an operator read it
    sketches: tuple[Sketch | None, ...]
    printed: tuple[str, ...]

    def equals(self, other: Result) -> bool:
        """Bit for bit, but for what was printed: versions and times of day are printed too."""
        pairs, mine, theirs = held_pairs(self, other)
        return (
            (self.ended, self.numbers) == (other.ended, other.numbers)
            and all(self.digests[i] == other.digests[j] for i, j in pairs)
            and not _cannot_be_paired(self, other, mine, theirs)
        )


def held_pairs(one: Result, other: Result) -> tuple[list[Pair], list[int], list[int]]:
    """Tensors that correspond to each other, and on each side those that have no counterpart: by type and line, else by
    type, in their order. Where one side has more of them, equal ones are paired first."""
    pairs, mine, theirs = list[Pair](), list(range(len(one.digests))), list(range(len(other.digests)))
    for by_line in (True, False):
        of_one, of_other = _grouped(one, mine, by_line), _grouped(other, theirs, by_line)
        for key in of_one.keys() & of_other.keys():
            if len(of_one[key]) != len(of_other[key]):
                pairs += _equal_ones(one, other, of_one[key], of_other[key])
            pairs += zip(of_one[key], of_other[key], strict=False)
        paired = {i for i, _ in pairs}, {j for _, j in pairs}
        mine, theirs = ([i for i in mine if i not in paired[0]], [j for j in theirs if j not in paired[1]])
    return sorted(pairs), mine, theirs


def _cannot_be_paired(one: Result, other: Result, mine: Iterable[int], theirs: Iterable[int]) -> bool:
    return not all(one.read[i] for i in mine) and not all(other.read[j] for j in theirs)


def _grouped(result: Result, places: Iterable[int], by_line: bool) -> dict[tuple[str, str], list[int]]:
    groups = defaultdict[tuple[str, str], list[int]](list)
    for place in places:
        groups[result.digests[place][0], result.lines[place] if by_line else ""].append(place)
    return groups


def _equal_ones(one: Result, other: Result, mine: list[int], theirs: list[int]) -> Iterable[Pair]:
    """Pairs of equal tensors, which are taken out of both lists."""
    for i in list(mine):
        j = next((j for j in theirs if other.digests[j] == one.digests[i]), None)
        if j is not None:
            mine.remove(i)
            theirs.remove(j)
            yield i, j


def held_by_one(one: Result, other: Result) -> list[tuple[int, int, str]]:
    """What is not compared: on which side, how many tensors, and where the first of them was written."""
    _, mine, theirs = held_pairs(one, other)
    sides = enumerate(((one, mine), (other, theirs)))
    return [(side, len(places), result.lines[places[0]]) for side, (result, places) in sides if places]


def result_of(trace: Trace) -> Result:
    places = [place for place in dict.fromkeys([*trace.alive, *last_outputs(trace)]) if trace.output(place).digest]
    values, read = [trace.output(place) for place in places], places_read(trace)
    return Result(
        ended=(trace.end.code, trace.end.exception),
        numbers=tuple(each.value for each in trace.operators if each.value),
        digests=tuple((value.type, value.digest) for value in values),
        lines=tuple(f"{trace.operators[op].phase} {trace.operators[op].line}" for op, _ in places),
        read=tuple(place in read for place in places),
        sketches=tuple(map(trace.sketch, places)),
        printed=tuple(trace.end.printed.splitlines()),
    )


def printed_difference(one: Result, other: Result, unstable: Iterable[int] = ()) -> list[tuple[str, str]]:
    """Lines that differ, but for those that differ from run to run."""
    count = max(len(one.printed), len(other.printed))
    lines = [(*each.printed, *[""] * (count - len(each.printed))) for each in (one, other)]
    skip = set(unstable)
    return [(a, b) for place, (a, b) in enumerate(zip(*lines, strict=True)) if a != b and place not in skip]


def unstable_lines(one: Result, other: Result) -> set[int]:
    """Places of the printed lines that a version's own two runs do not agree on."""
    return {place for place, (a, b) in enumerate(zip(one.printed, other.printed, strict=False)) if a != b}


def distance(one: Result, other: Result) -> float:
    """The larger of the two `distances`."""
    return max(distances(one, other))


def distances(one: Result, other: Result) -> tuple[float, float]:
    """The largest relative difference of a number, and of a tensor that was left; infinite where they cannot be paired,
    as where the runs ended in other ways."""
    if one.ended != other.ended or len(one.numbers) != len(other.numbers):
        return math.inf, math.inf
    pairs, mine, theirs = held_pairs(one, other)
    if _cannot_be_paired(one, other, mine, theirs):
        return math.inf, math.inf
    tensors = list[float]()
    for i, j in pairs:
        if one.digests[i] != other.digests[j]:
            a, b = one.sketches[i], other.sketches[j]
            tensors.append(relative(a, b) if a is not None and b is not None else math.inf)
    return relative_numbers(one.numbers, other.numbers), max(tensors, default=0.0)


def relative_numbers(one: Sequence[str], other: Sequence[str]) -> float:
    """The largest relative difference; infinite where they cannot be paired."""
    if len(one) != len(other):
        return math.inf
    return max(map(relative_number, one, other), default=0.0)


def relative_number(one: str, other: str) -> float:
    if one == other:
        return 0.0
    try:
        a, b = float(one), float(other)
    except ValueError:
        return math.inf
    return abs(a - b) / max(abs(a), abs(b)) if math.isfinite(a) and math.isfinite(b) else math.inf


def relative(one: Sketch, other: Sketch) -> float:
    """The norm of the difference over that of the first, estimated; infinite where one is not finite."""
    with np.errstate(all="ignore"):
        difference, scale = float(np.linalg.norm(one - other)), float(np.linalg.norm(one))
    if not math.isfinite(difference):
        return math.inf
    return difference / scale if scale else (0.0 if not difference else math.inf)


def growth(good: Trace, bad: Trace, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
    """Along the program: index in the bad trace, and the largest relative difference of a floating output there."""
    found = []
    for g, b in pairs:
        one, other = good.operators[g], bad.operators[b]
        if any(value.row is not None for value in one.outputs):
            slots = range(min(len(one.outputs), len(other.outputs)))
            found.append((b, max((_difference(good, bad, (g, s), (b, s)) for s in slots), default=0.0)))
    return found


def _difference(good: Trace, bad: Trace, one: Place, other: Place) -> float:
    if not good.output(one).differs(bad.output(other)):
        return 0.0
    a, b = good.sketch(one), bad.sketch(other)
    return relative(a, b) if a is not None and b is not None else 0.0
