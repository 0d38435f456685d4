"""What a run came to, and how far two are apart. Pure.

The end result is the exception and exit code, the numbers that left PyTorch, in their order, the tensors that the
script still held when it ended, the last outputs, and what it printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.trace.localise import last_outputs
from harness.trace.model import Place, Trace

Sketch = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Result:
    ended: tuple[int, str]  # exit code and exception
    numbers: tuple[str, ...]
    digests: tuple[tuple[str, str], ...]  # type and digest of what was left
    sketches: tuple[Sketch | None, ...]
    printed: tuple[str, ...]

    def equals(self, other: Result) -> bool:
        """Bit for bit, but for what was printed: versions and times of day are printed too."""
        mine, theirs = ((each.ended, each.numbers, each.digests) for each in (self, other))
        return mine == theirs


def result_of(trace: Trace) -> Result:
    places = [place for place in dict.fromkeys([*trace.alive, *last_outputs(trace)]) if trace.output(place).digest]
    values = [trace.output(place) for place in places]
    return Result(
        ended=(trace.end.code, trace.end.exception),
        numbers=tuple(each.value for each in trace.operators if each.value),
        digests=tuple((value.type, value.digest) for value in values),
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
    if [kind for kind, _ in one.digests] != [kind for kind, _ in other.digests]:
        return math.inf, math.inf
    tensors = list[float]()
    moved = [a[1] != b[1] for a, b in zip(one.digests, other.digests, strict=True)]
    for differs, a, b in zip(moved, one.sketches, other.sketches, strict=True):
        if differs:
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
