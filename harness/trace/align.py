"""Two traces matched, operator by operator. Pure.

First what begins and ends alike. Between, every key is numbered by its occurrence, and the longest sequence of equal
numbered keys in both orders is taken (a longest increasing subsequence, as in patience diff). The gaps are aligned
again in the same way. What is left in a gap is a region: operators that have no counterpart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from harness.trace.model import OperatorCall, Trace

Pair = tuple[int, int]
NEAR = 8  # matched operators


@dataclass(frozen=True)
class Region:
    """Operators between two matched ones that have no counterpart; one of the sides may be empty."""

    good: range
    bad: range


@dataclass(frozen=True)
class Alignment:
    """Positions of matched operators, and the regions between them."""

    pairs: tuple[Pair, ...]
    regions: tuple[Region, ...]


def strict_key(operator: OperatorCall) -> Hashable:
    return (*loose_key(operator), operator.line)


def loose_key(operator: OperatorCall) -> tuple[Hashable, ...]:
    """Return a key without the line: a script may have one branch for each version. What reads nothing is known by what
    it makes, and a view by its other arguments, which say what it shows."""
    types = tuple(value.type for value in operator.inputs or operator.outputs)
    shows = operator.scalars if operator.inputs and operator.is_view else ()
    return operator.name, operator.phase, operator.module, types, shows


def align(good: Trace, bad: Trace) -> Alignment:
    """Match by name, place and types; then what is left, on whatever line, as far as the dataflow agrees."""
    pairs = match(list(map(strict_key, good.operators)), list(map(strict_key, bad.operators)))
    for region in find_gaps(pairs, len(good.operators), len(bad.operators)):
        keys = [loose_key(good.operators[i]) for i in region.good], [loose_key(bad.operators[i]) for i in region.bad]
        candidates = [(region.good[i], region.bad[j]) for i, j in match(*keys)]
        if candidates:
            pairs = pairs + _agreeing_pairs(good, bad, pairs, candidates)
    return _join_regions(good, bad, sorted(pairs))


def _agreeing_pairs(good: Trace, bad: Trace, known: Iterable[Pair], candidates: Iterable[Pair]) -> list[Pair]:
    """Return the pairs whose inputs come from operators that are matched too, or that are not on both sides: a cast
    before a cosine is not the cast behind it."""
    to_bad = dict(known)
    matched, pairs = set(to_bad.values()), list[Pair]()
    for g, b in candidates:
        inputs = zip(good.operators[g].inputs, bad.operators[b].inputs, strict=True)
        sources = [(x.source[0], y.source[0]) for x, y in inputs if x.source and y.source]
        if all(to_bad[i] == j if i in to_bad else j not in matched for i, j in sources):
            pairs.append((g, b))
            to_bad[g] = b
            matched.add(b)
    return pairs


def _join_regions(good: Trace, bad: Trace, pairs: Sequence[Pair]) -> Alignment:
    """Join regions between which what was exchanged in order was matched: `cast, softmax` and `softmax, cast` would be
    a softmax that appeared before the cast, and one that vanished behind it. Join views of what a region made, too."""
    regions = list[Region]()
    for region in find_gaps(pairs, len(good.operators), len(bad.operators)):
        last = regions[-1] if regions else None
        if (
            last
            and region.good.start - last.good.stop <= NEAR
            and (
                _are_exchanged(last, region)
                or _shows(good, region.good, last.good)
                or _shows(bad, region.bad, last.bad)
            )
        ):
            regions[-1] = Region(range(last.good.start, region.good.stop), range(last.bad.start, region.bad.stop))
        else:
            regions.append(region)
    inside = {index for region in regions for index in region.good}
    return Alignment(tuple(pair for pair in pairs if pair[0] not in inside), tuple(regions))


def _shows(trace: Trace, indices: range, makers: range) -> bool:
    """Return whether these operators only show what the makers have made."""
    operators = [trace.operators[index] for index in indices]
    sources = {value.source[0] for operator in operators for value in operator.inputs if value.source}
    are_views = bool(operators) and all(operator.is_view for operator in operators)
    return are_views and any(index in makers for index in sources)


def _are_exchanged(first: Region, second: Region) -> bool:
    """Return whether each has operators of one version only, and not of the same one."""
    good, bad = bool(first.good), bool(first.bad)
    return good != bad and (good, bad) == (bool(second.bad), bool(second.good))


def match(good: Sequence[Hashable], bad: Sequence[Hashable]) -> list[Pair]:
    """Return positions of equal keys, ascending in both."""
    pairs, waiting = list[Pair](), [(0, len(good), 0, len(bad))]
    while waiting:
        left, right, low, high = waiting.pop()
        while left < right and low < high and good[left] == bad[low]:
            pairs.append((left, low))
            left, low = left + 1, low + 1
        while left < right and low < high and good[right - 1] == bad[high - 1]:
            right, high = right - 1, high - 1
            pairs.append((right, high))
        anchors = [(left + i, low + j) for i, j in _find_anchors(good[left:right], bad[low:high])]
        if anchors:
            pairs += anchors
            starts = [(left, low), *((i + 1, j + 1) for i, j in anchors)]
            for (i, j), (stop, end) in zip(starts, [*anchors, (right, high)], strict=True):
                waiting.append((i, stop, j, end))
    return sorted(pairs)


def _find_anchors(good: Sequence[Hashable], bad: Sequence[Hashable]) -> list[Pair]:
    positions = {key: position for position, key in enumerate(_number_keys(bad))}
    common = [(i, positions[key]) for i, key in enumerate(_number_keys(good)) if key in positions]
    return _longest_increasing(common)


def _number_keys(keys: Sequence[Hashable]) -> list[Hashable]:
    seen = Counter[Hashable]()
    numbered: list[Hashable] = []
    for key in keys:
        seen[key] += 1
        numbered.append((key, seen[key]))
    return numbered


def _longest_increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest subsequence whose second numbers increase (Fredman, 1975)."""
    ends, at, before = list[int](), list[int](), list[int]()
    for position, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(at[length - 1] if length else -1)
        ends[length : length + 1], at[length : length + 1] = [second], [position]
    chosen, position = list[Pair](), at[-1] if at else -1
    while position >= 0:
        chosen.append(pairs[position])
        position = before[position]
    return chosen[::-1]


def find_gaps(pairs: Iterable[Pair], good: int, bad: int) -> list[Region]:
    """Return what lies between the pairs, of traces of so many operators."""
    regions, i, j = list[Region](), 0, 0
    for left, right in [*pairs, (good, bad)]:
        if left > i or right > j:
            regions.append(Region(range(i, left), range(j, right)))
        i, j = left + 1, right + 1
    return regions
