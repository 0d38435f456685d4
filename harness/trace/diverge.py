"""Where two aligned traces diverge: by the dataflow of digests. Pure.

A matched operator, or a region, diverges if its inputs are equal in both traces and its outputs differ, as far as
anything reads them or the script still holds them at its end. All other differences are propagation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

from harness.trace.align import Alignment, Region, align
from harness.trace.model import OperatorCall, OperatorKind, Reason, Slot, Trace, Value


class Guard(NamedTuple):
    """What the input of an operator must be, for an output to be substituted."""

    operator: int  # of the trace that runs again
    position: int
    digest: str


class Feed(NamedTuple):
    """An input that is substituted by an output of the other trace: of a region that has nothing to be overwritten."""

    guard: Guard
    good: Slot


@dataclass(frozen=True)
class Site:
    """A matched operator, or a region: the unit that is compared, stored and substituted."""

    good: tuple[int, ...]
    bad: tuple[int, ...]
    kind: OperatorKind
    outputs: tuple[tuple[Slot, Slot], ...] = ()  # of the good trace, and what corresponds to it in the bad one
    feeds: tuple[Feed, ...] = ()
    guards: tuple[Guard, ...] = ()
    inputs_equal: bool = True
    differs: bool = False
    reason: Reason = Reason.VALUES

    @property
    def diverges(self) -> bool:
        return self.differs and self.inputs_equal

    @property
    def stored(self) -> list[Slot]:
        """Return the outputs of the good trace that a substitution needs."""
        return [*(good for good, bad in self.outputs if bad[0] in self.bad), *(feed.good for feed in self.feeds)]


@dataclass
class _OpenRegion:
    """A region while its outputs are gathered."""

    region: Region
    outputs: dict[tuple[Slot | None, Slot | None], bool] = field(default_factory=dict)  # whether they differ
    readers: list[tuple[Slot, Slot | None, Guard]] = field(default_factory=list)  # what reads which of them
    is_clean: bool = True  # inputs and outputs are equal


class _Side:
    """One trace, and what of it corresponds to the other one."""

    def __init__(self, trace: Trace, matched: dict[int, int], regions: dict[int, _OpenRegion]) -> None:
        self.trace, self.matched, self.regions = trace, matched, regions
        self.read = trace.find_read_outputs() | {*trace.end.alive, *trace.find_last_outputs()}
        self.digests = {value.digest for operator in trace.operators for value in (*operator.inputs, *operator.outputs)}


def compare_traces(good: Trace, bad: Trace, alignment: Alignment | None = None) -> list[Site]:
    """Return every matched operator that computes something, and every region, in the bad trace's order."""
    return _Comparison(good, bad, alignment or align(good, bad)).find_sites()


class _Comparison:
    def __init__(self, good: Trace, bad: Trace, alignment: Alignment) -> None:
        self.pairs = alignment.pairs
        self.regions = [_OpenRegion(region) for region in alignment.regions]
        of_good = {index: each for each in self.regions for index in each.region.good}
        of_bad = {index: each for each in self.regions for index in each.region.bad}
        self.good = _Side(good, dict(self.pairs), of_good)
        self.bad = _Side(bad, {b: g for g, b in self.pairs}, of_bad)
        changed = (b for g, b in self.pairs if good.operators[g].value != bad.operators[b].value)
        self.first_changed_value = next(changed, len(bad.operators))  # that left PyTorch

    def find_sites(self) -> list[Site]:
        self._gather_region_outputs()
        starts: list[tuple[int, int, _OpenRegion | tuple[int, int]]] = []
        starts += [(each.region.bad.start, 0, each) for each in self.regions]
        starts += [(b, 1, (g, b)) for g, b in self.pairs]
        sites = []
        for _, _, item in sorted(starts, key=lambda start: start[:2]):
            if isinstance(item, _OpenRegion):
                site = self._compare_region(item) if item.outputs else None
                item.is_clean = site is None or (site.inputs_equal and not site.differs)
            else:
                site = self._compare_operator(*item)
            if site is not None:
                sites.append(site)
        return sites

    # -- matched operators ------------------------------------------------------------------------------------------

    def _compare_operator(self, g: int, b: int) -> Site | None:
        left, right = self.good.trace.operators[g], self.bad.trace.operators[b]
        slots = [slot for slot in range(min(len(left.outputs), len(right.outputs))) if left.outputs[slot].digest]
        if not slots:
            return None
        equal, reason = self._compare_inputs(left, right)
        return Site(
            good=(g,),
            bad=(b,),
            kind=OperatorKind((left.name,), (right.name,)),
            outputs=tuple(((g, slot), (b, slot)) for slot in slots),
            guards=tuple(Guard(b, place, value.digest) for place, value in enumerate(left.inputs) if value.digest),
            inputs_equal=equal,
            differs=any(
                left.outputs[slot].differs(right.outputs[slot])
                for slot in slots
                if (g, slot) in self.good.read or (b, slot) in self.bad.read
            ),
            reason=reason,
        )

    def _compare_inputs(self, left: OperatorCall, right: OperatorCall) -> tuple[bool, Reason]:
        """Return whether all that goes in is equal; and the reason that would then remain."""
        pairs = list(zip(left.inputs, right.inputs, strict=True))
        if left.is_given_unknown or right.is_given_unknown:
            return False, Reason.VALUES
        if any(x.differs(y) for position, (x, y) in enumerate(pairs) if position not in right.fed):
            return False, Reason.VALUES
        if left.generator != right.generator:
            return False, Reason.DRAWS
        if left.scalars != right.scalars:  # a number that was taken from a tensor, or another call
            return right.index < self.first_changed_value, Reason.ARGUMENTS
        if left.generator:
            return True, Reason.DRAWS
        same_strides = all(x.strides == y.strides for x, y in pairs)
        return True, Reason.VALUES if same_strides else Reason.LAYOUT

    # -- regions ----------------------------------------------------------------------------------------------------

    def _gather_region_outputs(self) -> None:
        """Find what leaves a region: to matched operators, or to the script's end."""
        good, bad = self.good.trace, self.bad.trace
        for g, b in self.pairs:
            inputs = zip(good.operators[g].inputs, bad.operators[b].inputs, strict=True)
            for position, (x, y) in enumerate(inputs):
                differs = x.differs(y) and position not in bad.operators[b].fed
                self._add_output(x.source, y.source, differs, Guard(b, position, y.digest))
        finals = good.find_final_outputs(), bad.find_final_outputs()
        for each in self.regions:
            own = [slot for slot in finals[0] if slot[0] in each.region.good]
            others = [slot for slot in finals[1] if slot[0] in each.region.bad]
            for left, right in zip(own, others, strict=False):
                x, y = good.output(left), bad.output(right)
                if x.type == y.type:
                    self._add_output(left, right, x.differs(y))

    def _add_output(self, left: Slot | None, right: Slot | None, differs: bool, reader: Guard | None = None) -> None:
        region = (self.bad.regions.get(right[0]) if right else None) or (
            self.good.regions.get(left[0]) if left else None
        )
        if region is not None:
            region.outputs[left, right] = region.outputs.get((left, right), False) or differs
            if left is not None and reader is not None:
                region.readers.append((left, right, reader))

    def _compare_region(self, each: _OpenRegion) -> Site:
        region = each.region
        guards, draws = list[Guard](), list[list[str]]()
        equal = True
        for own, other, indices in ((self.bad, self.good, region.bad), (self.good, self.bad, region.good)):
            operators = [own.trace.operators[index] for index in indices]
            draws.append([operator.generator for operator in operators if operator.generator])
            equal = equal and not any(operator.is_given_unknown for operator in operators)
            for operator in operators:
                for position, value in enumerate(operator.inputs):
                    if value.source is None or value.source[0] not in indices:
                        counterpart = self._find_counterpart(value.source, own, other)
                        if counterpart is not None and counterpart.type != value.type:
                            counterpart = None
                        equal = self._is_in_other(value, counterpart, own, other) and equal
                        if own is self.bad and value.digest and counterpart is not None:
                            guards.append(Guard(operator.index, position, counterpart.digest))
        return Site(
            good=tuple(region.good),
            bad=tuple(region.bad),
            kind=self._find_kind(region),
            outputs=tuple((left, right) for left, right in each.outputs if left and self._is_computed(right, region)),
            feeds=tuple(self._find_feeds(each)),
            guards=tuple(guards),
            inputs_equal=equal and (draws[0] == draws[1] or not all(draws)),
            differs=any(each.outputs.values()),
        )

    def _find_kind(self, region: Region) -> OperatorKind:
        """Return the names of what computes something, in either version; if nothing does, those of all."""
        good, bad = self.good.trace, self.bad.trace
        names = [
            (good.name_operators(region.good, views), bad.name_operators(region.bad, views)) for views in (False, True)
        ]
        return OperatorKind(*(names[0] if any(names[0]) else names[1]), is_region=True)

    def _is_computed(self, slot: Slot | None, region: Region) -> TypeGuard[Slot]:
        """Return whether the region computes the output in the bad trace, or shows there what it computed. A view of
        anything else is not overwritten: what it is a view of would be."""
        while slot is not None and slot[0] in region.bad:
            if self.bad.trace.output(slot).digest:
                return True
            inputs = self.bad.trace.operators[slot[0]].inputs
            slot = next((value.source for value in inputs if value.source), None)
        return False

    def _find_feeds(self, each: _OpenRegion) -> Iterable[Feed]:
        """Yield inputs of matched operators that are an output of the region in the good trace, and in the bad one a
        view, or no output of it. The guard is what they are in a bad version that nothing else has changed; of the
        region's own views, its guards say it."""
        for left, right, reader in each.readers:
            if right is not None and right[0] in each.region.bad:
                if not self._is_computed(right, each.region):
                    yield Feed(reader._replace(digest=""), left)
                continue
            counterpart = self._find_counterpart(right, self.bad, self.good)
            made = counterpart.digest if counterpart else reader.digest
            if made and (made in self.good.digests or right is None):
                yield Feed(reader._replace(digest=made), left)

    def _find_counterpart(self, slot: Slot | None, own: _Side, other: _Side) -> Value | None:
        """Return what corresponds to an output in the other trace, if that computed it."""
        if slot is None or slot[0] not in own.matched:
            return None
        outputs = other.trace.operators[own.matched[slot[0]]].outputs
        return outputs[slot[1]] if slot[1] < len(outputs) and outputs[slot[1]].digest else None

    def _is_in_other(self, value: Value, counterpart: Value | None, own: _Side, other: _Side) -> bool:
        """Return whether an input of a region has its equal in the other trace: what corresponds to it, or else any
        value."""
        if not value.digest:
            return True
        if counterpart is not None:
            return counterpart.digest == value.digest
        if value.source is not None and value.source[0] in own.regions:
            return own.regions[value.source[0]].is_clean
        return value.digest in other.digests
