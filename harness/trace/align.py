"""Two traces matched, operator by operator. Pure.

First what begins and ends alike; between, every key is numbered by its occurrence, and the longest sequence of equal
numbered keys in both orders is taken (a longest increasing subsequence, as in patience diff). The gaps are aligned
again, by themselves. What is left in a gap is a region: operators that have no counterpart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from harness.trace.model import Operator, Trace

Pair = tuple[int, int]
NEAR = 8  # matched operators


@dataclass(frozen=True)
class Region:
    """Operators between two matched ones that have no counterpart; one of the sides may be empty."""

    good: range
    bad: range


@dataclass(frozen=True)
class Alignment:
    pairs: tuple[Pair, ...]
    regions: tuple[Region, ...]


def strict_key(operator: Operator) -> Hashable:
    return (*loose_key(operator), operator.line)


def loose_key(operator: Operator) -> tuple[Hashable, ...]:
    """Without the line: where a script has one branch for each version, they have other lines. What reads nothing is
    known by what it makes, and a view by its other arguments, which say what it shows."""
    types = tuple(value.type for value in operator.inputs or operator.outputs)
    shows = operator.scalars if operator.inputs and operator.is_view else ()
    return operator.name, operator.phase, operator.module, types, shows


def align(good: Trace, bad: Trace) -> Alignment:
    pairs = match([strict_key(each) for each in good.operators], [strict_key(each) for each in bad.operators])
    more = list(pairs)
    for region in gaps(pairs, len(good.operators), len(bad.operators)):
        keys = [loose_key(good.operators[i]) for i in region.good], [loose_key(bad.operators[i]) for i in region.bad]
        more += _agreeing(good, bad, more, [(region.good[i], region.bad[j]) for i, j in match(*keys)])
    return _joined(good, bad, sorted(more))


def _agreeing(good: Trace, bad: Trace, known: Iterable[Pair], pairs: Iterable[Pair]) -> list[Pair]:
    """Of pairs on other lines, those whose inputs come from operators that are matched too, or that are not on both
    sides: a cast before a cosine is not the cast behind it."""
    to_bad = dict(known)
    matched, found = set(to_bad.values()), list[Pair]()
    for g, b in pairs:
        inputs = zip(good.operators[g].inputs, bad.operators[b].inputs, strict=True)
        sources = [(one.source[0], other.source[0]) for one, other in inputs if one.source and other.source]
        if all(to_bad[i] == j if i in to_bad else j not in matched for i, j in sources):
            found.append((g, b))
            to_bad[g] = b
            matched.add(b)
    return found


def _joined(good: Trace, bad: Trace, pairs: Sequence[Pair]) -> Alignment:
    """Regions, those joined between which what was exchanged in order was matched: `cast, softmax` and `softmax, cast`
    would be a softmax that appeared before the cast, and one that vanished behind it. Views of what a region made are
    joined to it, too."""
    regions = list[Region]()
    for region in gaps(pairs, len(good.operators), len(bad.operators)):
        last = regions[-1] if regions else None
        if (
            last
            and region.good.start - last.good.stop <= NEAR
            and (_complement(last, region) or _shows(good, region.good, last.good) or _shows(bad, region.bad, last.bad))
        ):
            regions[-1] = Region(range(last.good.start, region.good.stop), range(last.bad.start, region.bad.stop))
        else:
            regions.append(region)
    inside = {index for region in regions for index in region.good}
    return Alignment(tuple(pair for pair in pairs if pair[0] not in inside), tuple(regions))


def _shows(trace: Trace, indices: range, made: range) -> bool:
    """Whether these operators only show what those have made."""
    every = [trace.operators[index] for index in indices]
    sources = {value.source[0] for each in every for value in each.inputs if value.source}
    return bool(every) and all(each.is_view for each in every) and any(index in made for index in sources)


def _complement(one: Region, other: Region) -> bool:
    """Whether each has operators on one side alone, and not on the same."""
    return (bool(one.good), bool(one.bad), bool(other.good), bool(other.bad)) in (
        (True, False, False, True),
        (False, True, True, False),
    )


def match(good: Sequence[Hashable], bad: Sequence[Hashable]) -> list[Pair]:
    """Positions of equal keys, ascending in both."""
    found, waiting = list[Pair](), [(0, len(good), 0, len(bad))]
    while waiting:
        left, right, low, high = waiting.pop()
        while left < right and low < high and good[left] == bad[low]:
            found.append((left, low))
            left, low = left + 1, low + 1
        while left < right and low < high and good[right - 1] == bad[high - 1]:
            right, high = right - 1, high - 1
            found.append((right, high))
        anchors = _anchors(good[left:right], bad[low:high])
        if not anchors:
            continue
        before = (left, low)
        for i, j in [(left + i, low + j) for i, j in anchors] + [(right, high)]:
            waiting.append((before[0], i, before[1], j))
            before = (i + 1, j + 1)
        found += [(left + i, low + j) for i, j in anchors]
    return sorted(found)


def _anchors(good: Sequence[Hashable], bad: Sequence[Hashable]) -> list[Pair]:
    places = {key: place for place, key in enumerate(_numbered(bad))}
    common = [(i, places[key]) for i, key in enumerate(_numbered(good)) if key in places]
    return _increasing(common)


def _numbered(keys: Sequence[Hashable]) -> list[Hashable]:
    seen = Counter[Hashable]()
    numbered: list[Hashable] = []
    for key in keys:
        seen[key] += 1
        numbered.append((key, seen[key]))
    return numbered


def _increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """The longest of its subsequences whose second numbers increase (Fredman, 1975)."""
    ends, at, before = list[int](), list[int](), list[int]()
    for place, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(at[length - 1] if length else -1)
        if length == len(ends):
            ends.append(second)
            at.append(place)
        else:
            ends[length], at[length] = second, place
    chosen, place = list[Pair](), at[-1] if at else -1
    while place >= 0:
        chosen.append(pairs[place])
        place = before[place]
    return chosen[::-1]


def gaps(pairs: Iterable[Pair], good: int, bad: int) -> list[Region]:
    regions, i, j = list[Region](), 0, 0
    for left, right in [*pairs, (good, bad)]:
        if left > i or right > j:
            regions.append(Region(range(i, left), range(j, right)))
        i, j = left + 1, right + 1
    return regions


def names_of(trace: Trace, indices: Iterable[int]) -> list[str]:
    """Names of what computes something, each once."""
    every = [trace.operators[index] for index in indices]
    return list(dict.fromkeys(each.name for each in every if not each.is_view))


def changes(good: Trace, bad: Trace, alignment: Alignment) -> list[dict[str, object]]:
    """What appeared, vanished or was replaced, with how often; regions that only make views are left out."""
    counted = Counter[tuple[tuple[str, ...], tuple[str, ...], str]]()
    for region in alignment.regions:
        before, after = names_of(good, region.good), names_of(bad, region.bad)
        first = bad.operators[region.bad[0]] if region.bad else good.operators[region.good[0]]
        if before or after:
            counted[tuple(before), tuple(after), first.line] += 1
    return [
        {
            "what": "replaced" if before and after else "vanished" if before else "appeared",
            "before": list(before),
            "after": list(after),
            "line": line,
            "times": times,
        }
        for (before, after, line), times in counted.items()
    ]
