"""Simple rules that tell the sizes at which a kernel is wrong from those at which it is right. Pure.

A rule speaks of one dimension of the inputs, says of every size of it whether the kernel is wrong there, and fits where
no size that was tried says otherwise. `ask` gives the sizes to try next: those at which a rule that fits is most likely
to be refuted, and smaller ones that may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.schema.experiment_records import ConditionResult
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol

LENGTH, HEAD_DIM = "seq_len", "head_dim"
DIMENSIONS = ("batch", "heads", LENGTH, HEAD_DIM)  # of a condition: 0 is the workload's own
GRAIN = {HEAD_DIM: 8}  # between sizes of a dimension that are asked for: many kernels refuse what this does not divide
STEPS = (2, 3, 4, 5, 7, 8, 16, 32, 64, 128, 256)
FEWEST = 3  # sizes of a dimension that are right, and that are wrong, to tell a rule
LESS_LIKELY = 32.0  # times, for each size tried that contradicts a rule: those that fit outweigh all others together
MOST_ASKED, MOST_ROUNDS, MOST_A_ROUND = 8, 5, 4
MOST_COMPARED = 512  # sizes, of which the one most likely to refute a rule is taken
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Point:
    sizes: Sizes
    right: bool | None  # None: it was tried, and refused or not judged
    asked: bool = False  # because of what was found before it
    crashed: bool = False  # which is not right either

    def says_of(self, dimension: str) -> bool:
        """At length 1 the one key has all the weight, whatever its score: much is right there."""
        return dimension == LENGTH or self.sizes[LENGTH] > 1

    def varies(self, own: Sizes) -> list[str]:
        return [name for name, size in own.items() if self.sizes[name] != size]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Wrong where a size is above the number, up to it, a multiple of it (`on`), or none (`off`)."""

    dimension: str
    kind: Literal["above", "up_to", "on", "off"]
    number: int
    but_one: bool = False  # right at length 1, which it would call wrong

    def wrong_at(self, size: int) -> bool:
        if self.kind in ("on", "off"):
            return (size % self.number == 0) == (self.kind == "on") and not (self.but_one and size == 1)
        return (size > self.number) == (self.kind == "above")


class Tried:
    """What was found along one dimension. A size may be right with some sizes of the others, and wrong with others:
    then no rule of this dimension alone fits. What is right at length 1 says nothing of the other dimensions."""

    def __init__(self, dimension: str, points: Iterable[Point]) -> None:
        points = list(points)
        self.dimension = dimension
        self.right = {each.sizes[dimension] for each in points if each.right and each.says_of(dimension)}
        self.wrong = {each.sizes[dimension] for each in points if each.right is False}
        self.asked = {each.sizes[dimension] for each in points if each.asked and each.right is not None}
        self.every = {each.sizes[dimension] for each in points}
        self.grain = GRAIN.get(dimension, 1)

    def candidates(self) -> list[Rule]:
        if not self.right or not self.wrong:
            return []
        but_one = self.dimension == LENGTH and 1 in self.right
        name = self.dimension
        found = [Rule(dimension=name, kind="off", number=step, but_one=but_one) for step in STEPS]
        found += [Rule(dimension=name, kind="on", number=step) for step in STEPS]
        if max(self.right) < min(self.wrong):
            found.append(Rule(dimension=name, kind="above", number=roundest(max(self.right), min(self.wrong))))
        if max(self.wrong) < min(self.right):
            found.append(Rule(dimension=name, kind="up_to", number=roundest(max(self.wrong), min(self.right))))
        return found

    def mistakes(self, rule: Rule) -> int:
        return sum(map(rule.wrong_at, self.right)) + sum(not rule.wrong_at(size) for size in self.wrong)

    def fitting(self) -> list[Rule]:
        return [rule for rule in self.candidates() if not self.mistakes(rule)]

    def bears_out(self, rule: Rule) -> bool:
        """Whether enough sizes were tried on either side; of a limit, all up to it are enough."""
        below = {"above": self.right, "up_to": self.wrong}.get(rule.kind)
        every = below is not None and below == set(range(1, rule.number + 1))
        sides = (self.right - {1} if rule.but_one else self.right, self.wrong)
        return all(len(side) >= FEWEST or (every and side is below) for side in sides)

    def tests(self, rule: Rule, fitting: Sequence[Rule]) -> list[int]:
        """Sizes within those tried that may refute a rule; where it alone fits, also the smallest it calls wrong."""
        if rule.kind in ("above", "up_to"):
            edge = [size for size in (rule.number, rule.number + self.grain) if size not in self.every]
            if edge:
                return edge
        within = range(min(self.right | self.wrong), max(self.every))
        open_sizes = [n for n in within if n not in self.every and n % self.grain == 0]
        rivals = [(other, LESS_LIKELY ** -self.mistakes(other)) for other in self.candidates()]
        found = [n for n in open_sizes if n < min(self.wrong) and rule.wrong_at(n)][: len(fitting) == 1]
        for wrong in (True, False):
            sizes = [n for n in open_sizes if rule.wrong_at(n) == wrong][:MOST_COMPARED]
            doubt = {n: sum(weight for other, weight in rivals if other.wrong_at(n) != wrong) for n in sizes}
            best = max(sizes, key=lambda n: (doubt[n], -n), default=0)
            tested = any(rule.wrong_at(n) == wrong for n in self.asked)
            if best and (not tested or any(other.wrong_at(best) != wrong for other in fitting)):
                found.append(best)
        return found

    def below_smallest(self) -> list[int]:
        """Where no rule fits: smaller sizes, between the smallest that is wrong and the next that is right."""
        least = min(self.wrong, default=0)
        right = {size for size in self.right if size < least}
        edge = roundest(max(right), least) if right else 0
        return [size for size in (edge, edge + self.grain) if right and size not in self.every]


def roundest(first: int, end: int) -> int:
    """The number from `first`, and before `end`, that the highest power of two divides; of several the lowest."""
    return max(range(first, end), key=lambda n: (n & -n, -n))


def fitting(points: Sequence[Point], own: Sizes) -> list[Rule]:
    """All rules that no point contradicts, the simplest first, and that enough points bear out."""
    return [
        rule
        for name in own
        for tried in [Tried(name, points)]
        if 0 not in tried.every
        for rule in tried.fitting()
        if tried.bears_out(rule)
    ]


def smallest(points: Sequence[Point], own: Sizes) -> dict[str, int]:
    """Of each dimension the smallest size that is wrong where the others are the workload's; 1 where none is. The head
    dimension stays the workload's: a kernel may be made for that one alone."""
    along = {name: Tried(name, _along(name, points, own)).wrong for name in own}
    return {name: own[name] if name == HEAD_DIM else min(wrong, default=1) for name, wrong in along.items()}


def _along(name: str, points: Iterable[Point], own: Sizes) -> list[Point]:
    return [point for point in points if set(point.varies(own)) <= {name}]


def ask(points: Sequence[Point], own: Sizes, left: int = MOST_ASKED) -> list[dict[str, int]]:
    """The sizes to try next, those that may refute most first; at last the smallest of each dimension together."""
    found = []
    for name in own:
        every, along = Tried(name, points), Tried(name, _along(name, points, own))
        rules = every.fitting()
        sizes = [size for rule in rules for size in every.tests(rule, rules)] if rules else along.below_smallest()
        sizes.sort(key=lambda size: len({rule.wrong_at(size) for rule in rules}) < 2)  # first what tells them apart
        found += [{**own, name: size} for size in dict.fromkeys(sizes) if size not in along.every]
    found = found[: min(MOST_A_ROUND, left - 1)]
    corner = smallest(points, own)
    if not found and any(point.right is False for point in points) and all(point.sizes != corner for point in points):
        found = [corner]
    return found[:left]


# -- records ------------------------------------------------------------------------------------------------


def own_sizes(workload: WorkloadInfo | None) -> dict[str, int]:
    return {name: getattr(workload, name, None) or 0 for name in DIMENSIONS}


def points_of(results: Iterable[ConditionResult], own: Sizes) -> list[Point]:
    return [
        Point(
            {name: getattr(each.condition, name) or own[name] for name in own},
            0 < each.runs == each.passed if each.status in protocol.RAN else False if _crashed(each) else None,
            each.asked,
            _crashed(each),
        )
        for each in results
    ]


def _crashed(result: ConditionResult) -> bool:
    """A signal is a fault, and what the GPU ends is; what else raised, or could not be judged, says nothing of the
    size."""
    return result.status == protocol.CRASHED and any(mark in result.message for mark in ("died by SIG", "CUDA error"))
