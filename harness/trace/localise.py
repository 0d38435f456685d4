"""Where two aligned traces part: by the dataflow of digests. Pure.

An origin is a matched operator, or a region, whose inputs are equal in both traces and whose outputs differ, as far as
anything reads them or the script still holds them at its end. All other differences are propagation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from harness.trace.align import Alignment, Region, names_of
from harness.trace.model import Operator, Place, Trace, Value

ARGUMENTS, DRAWS, LAYOUT, VALUES = "arguments", "draws", "layout", "values"


class Guard(NamedTuple):
    """What the input of an operator must be, for an output to be put back."""

    operator: int  # of the trace that is run again
    position: int
    digest: str


class Feed(NamedTuple):
    """An input that is replaced by an output of the other trace: of a region that has nothing to be overwritten."""

    guard: Guard
    good: Place


@dataclass(frozen=True)
class Site:
    """A matched operator, or a region: the unit that is found, stored and put back."""

    good: tuple[int, ...]
    bad: tuple[int, ...]
    kind: str  # names of operators; what has the same is put back together
    is_region: bool = False
    outputs: tuple[tuple[Place, Place], ...] = ()  # of the good trace, and what corresponds to it in the bad one
    feeds: tuple[Feed, ...] = ()
    guards: tuple[Guard, ...] = ()
    inputs_equal: bool = True
    differs: bool = False
    why: str = VALUES

    @property
    def is_origin(self) -> bool:
        return self.differs and self.inputs_equal

    @property
    def stored(self) -> list[Place]:
        """Outputs of the good trace that putting it back needs."""
        return [*(one for one, other in self.outputs if other[0] in self.bad), *(feed.good for feed in self.feeds)]


@dataclass
class _Open:
    """A region while its outputs are gathered."""

    region: Region
    outputs: dict[tuple[Place | None, Place | None], bool] = field(default_factory=dict)  # whether they differ
    readers: list[tuple[Place, Place | None, Guard]] = field(default_factory=list)  # what reads which of them


def short(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def examine(good: Trace, bad: Trace, alignment: Alignment) -> list[Site]:
    """Every matched operator that computes something, and every region, in the bad trace's order."""
    return _Examination(good, bad, alignment).sites()


class _Examination:
    def __init__(self, good: Trace, bad: Trace, alignment: Alignment) -> None:
        self.good, self.bad, self.alignment = good, bad, alignment
        self.to_bad = dict(alignment.pairs)
        self.to_good = {b: g for g, b in alignment.pairs}
        self.read = {side: _read(trace) for side, trace in (("good", good), ("bad", bad))}
        self.regions = [_Open(region) for region in alignment.regions]
        self.of_good = {index: each for each in self.regions for index in each.region.good}
        self.of_bad = {index: each for each in self.regions for index in each.region.bad}
        self.digests = {id(trace): _digests(trace) for trace in (good, bad)}
        self.moved_value = self._first_moved_value()

    def sites(self) -> list[Site]:
        self._gather()
        unclean, found = set[int](), list[Site]()
        starts: list[tuple[int, int, _Open | tuple[int, int]]] = []
        starts += [(each.region.bad.start, 0, each) for each in self.regions]
        starts += [(b, 1, (g, b)) for g, b in self.alignment.pairs]
        for _, _, each in sorted(starts, key=lambda start: start[:2]):
            site = self._region(each, unclean) if isinstance(each, _Open) else self._operator(*each)
            if site is not None:
                if isinstance(each, _Open) and (site.differs or not site.inputs_equal):
                    unclean.add(id(each))
                found.append(site)
        return found

    def _operator(self, g: int, b: int) -> Site | None:
        one, other = self.good.operators[g], self.bad.operators[b]
        slots = [slot for slot in range(min(len(one.outputs), len(other.outputs))) if one.outputs[slot].digest]
        if not slots:
            return None
        read = [slot for slot in slots if (g, slot) in self.read["good"] or (b, slot) in self.read["bad"]]
        differs = any(one.outputs[slot].differs(other.outputs[slot]) for slot in read)
        equal, why = self._compare_inputs(one, other)
        return Site(
            good=(g,),
            bad=(b,),
            kind=one.name,
            outputs=tuple(((g, slot), (b, slot)) for slot in slots),
            guards=tuple(Guard(b, place, value.digest) for place, value in enumerate(one.inputs) if value.digest),
            inputs_equal=equal,
            differs=differs,
            why=why,
        )

    def _compare_inputs(self, one: Operator, other: Operator) -> tuple[bool, str]:
        """Whether all that goes in is equal; and what is not, where it may be the origin by itself."""
        if one.is_given_unknown or other.is_given_unknown:
            return False, VALUES
        pairs = enumerate(zip(one.inputs, other.inputs, strict=True))
        if any(a.differs(b) for place, (a, b) in pairs if place not in other.fed):
            return False, VALUES
        if one.generator != other.generator:
            return False, DRAWS
        if one.scalars != other.scalars:  # a number that was taken from a tensor, or another call
            return other.index < self.moved_value, ARGUMENTS
        if one.generator:
            return True, DRAWS
        same = all(a.strides == b.strides for a, b in zip(one.inputs, other.inputs, strict=True))
        return True, VALUES if same else LAYOUT

    def _first_moved_value(self) -> int:
        """The first operator of the bad trace that gave the script another number."""
        pairs = ((self.good.operators[g], self.bad.operators[b]) for g, b in self.alignment.pairs)
        return next((b.index for g, b in pairs if g.value != b.value), len(self.bad.operators))

    # -- regions ------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """What leaves a region: to matched operators, or to the script's end."""
        for g, b in self.alignment.pairs:
            inputs = zip(self.good.operators[g].inputs, self.bad.operators[b].inputs, strict=True)
            for position, (one, other) in enumerate(inputs):
                differs = one.differs(other) and position not in self.bad.operators[b].fed
                self._leaves(one.source, other.source, differs, Guard(b, position, other.digest))
        for each in self.regions:
            ends = [
                _ends(trace, indices) for trace, indices in ((self.good, each.region.good), (self.bad, each.region.bad))
            ]
            for one_place, other_place in zip(*ends, strict=False):
                one, other = self.good.output(one_place), self.bad.output(other_place)
                if one.type == other.type:
                    self._leaves(one_place, other_place, one.differs(other))

    def _leaves(self, one: Place | None, other: Place | None, differs: bool, reader: Guard | None = None) -> None:
        region = (self.of_bad.get(other[0]) if other else None) or (self.of_good.get(one[0]) if one else None)
        if region is not None:
            region.outputs[one, other] = region.outputs.get((one, other), False) or differs
            if one is not None and reader is not None:
                region.readers.append((one, other, reader))

    def _region(self, each: _Open, unclean: set[int]) -> Site | None:
        if not each.outputs:
            return None
        region = each.region
        guards = list[Guard]()
        equal = all(
            self._is_there(self.to_good, self.good, self.of_bad, place, value, unclean, guards)
            for place, value in _external(self.bad, region.bad)
        ) and all(
            self._is_there(self.to_bad, self.bad, self.of_good, place, value, unclean, None)
            for place, value in _external(self.good, region.good)
        )
        draws = [
            [t.operators[i].generator for i in r if t.operators[i].generator]
            for t, r in ((self.good, region.good), (self.bad, region.bad))
        ]
        if draws[0] != draws[1] and all(draws):
            equal = False
        unknown = [
            trace.operators[i].is_given_unknown
            for trace, r in ((self.good, region.good), (self.bad, region.bad))
            for i in r
        ]
        equal = equal and not any(unknown)
        outputs = tuple((one, other) for one, other in each.outputs if one and self._computed(other, region))
        return Site(
            good=tuple(region.good),
            bad=tuple(region.bad),
            kind=self._kind(region),
            is_region=True,
            outputs=outputs,
            feeds=tuple(self._feeds(each)),
            guards=tuple(guards),
            inputs_equal=equal,
            differs=any(each.outputs.values()),
        )

    def _kind(self, region: Region) -> str:
        sides = (self.good, region.good), (self.bad, region.bad)
        names = [names_of(*side) for side in sides]
        if not any(names):
            names = [list(dict.fromkeys(trace.operators[index].name for index in indices)) for trace, indices in sides]
        return " -> ".join(map(short, names))

    def _computed(self, place: Place | None, region: Region) -> TypeGuard[Place]:
        """Whether the region computes it in the bad trace, or shows there what it computed. A view of anything else is
        not overwritten: what it is a view of would be."""
        while place is not None and place[0] in region.bad:
            if self.bad.output(place).digest:
                return True
            place = next((value.source for value in self.bad.operators[place[0]].inputs if value.source), None)
        return False

    def _feeds(self, each: _Open) -> Iterable[Feed]:
        """Inputs of matched operators that are an output of the region in the good trace, and in the bad one a view, or
        no output of it. The guard is what they are in a bad version that nothing else has changed; of the region's own
        views, its guards say it."""
        for one, other, reader in each.readers:
            if other is not None and other[0] in each.region.bad:
                if not self._computed(other, each.region):
                    yield Feed(reader._replace(digest=""), one)
                continue
            made = self._counterpart(other) or reader.digest
            if made and (made in self.digests[id(self.good)] or other is None):
                yield Feed(reader._replace(digest=made), one)

    def _counterpart(self, place: Place | None) -> str:
        """Digest, in the good trace, of what corresponds to an output of the bad one; empty where nothing does."""
        if place is None or place[0] not in self.to_good:
            return ""
        outputs = self.good.operators[self.to_good[place[0]]].outputs
        return outputs[place[1]].digest if place[1] < len(outputs) else ""

    def _is_there(
        self,
        to_other: Mapping[int, int],
        other: Trace,
        regions: Mapping[int, _Open],
        place: Place,
        value: Value,
        unclean: set[int],
        guards: list[Guard] | None,
    ) -> bool:
        """Whether an input of a region has its equal in the other trace: what corresponds to it, or else any value."""
        if not value.digest:
            return True
        if value.source is not None:
            index, slot = value.source
            matched = other.operators[to_other[index]].outputs if index in to_other else ()
            if slot < len(matched) and matched[slot].digest and matched[slot].type == value.type:
                if guards is not None:
                    guards.append(Guard(*place, matched[slot].digest))
                return matched[slot].digest == value.digest
            if index in regions:
                return id(regions[index]) not in unclean
        return value.digest in self.digests[id(other)]


def entry(good: Trace, bad: Trace, alignment: Alignment) -> tuple[str, str]:
    """What differs without an operator that made it, and the first line that takes it; empty where there is none."""
    for g, b in alignment.pairs:
        one, other = good.operators[g], bad.operators[b]
        inputs = zip(one.inputs, other.inputs, strict=True)
        if any(x.source is None and y.source is None and x.differs(y) for x, y in inputs):
            return "data that no operator made", other.line
        if one.generator != other.generator:
            return "the random generator's state", other.line
    return "", ""


def places_read(trace: Trace) -> set[Place]:
    """Outputs that an operator reads."""
    return {value.source for each in trace.operators for value in each.inputs if value.source is not None}


def _read(trace: Trace) -> set[Place]:
    """Outputs that an operator reads, the script still holds, or that the last operator with a floating one made."""
    return places_read(trace) | set(trace.alive) | set(last_outputs(trace))


def _digests(trace: Trace) -> set[str]:
    """Of all values that there were."""
    return {value.digest for each in trace.operators for value in (*each.inputs, *each.outputs)}


def last_outputs(trace: Trace) -> list[Place]:
    for each in reversed(trace.operators):
        if any(value.row is not None for value in each.outputs):
            return [(each.index, slot) for slot, value in enumerate(each.outputs) if value.row is not None]
    return []


def _ends(trace: Trace, indices: range) -> list[Place]:
    ends = dict.fromkeys([*trace.alive, *last_outputs(trace)])
    return [place for place in ends if place[0] in indices and trace.output(place).digest]


def _external(trace: Trace, indices: range) -> list[tuple[tuple[int, int], Value]]:
    """Inputs of a region that come from outside of it, by operator and position."""
    return [
        ((index, place), value)
        for index in indices
        for place, value in enumerate(trace.operators[index].inputs)
        if value.source is None or value.source[0] not in indices
    ]
