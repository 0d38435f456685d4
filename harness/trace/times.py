"""Which operators a script's other time comes from. Pure.

Times are compared by samples of both versions that were taken in turns. A difference is decided where the two ranges
do not overlap: of five samples each, that happens by chance in one case of 126.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.trace.align import Alignment, names_of
from harness.trace.localise import short
from harness.trace.model import Trace, Value

TYPE = re.compile(r"[a-z]+?(\d*)\[(.*)\]")
Indices = tuple[int, ...]


@dataclass(frozen=True)
class Compared:
    """Samples of both versions, in the order in which they were taken: seconds, or bytes."""

    good: tuple[float, ...]
    bad: tuple[float, ...]

    @property
    def medians(self) -> tuple[float, float]:
        return statistics.median(self.good), statistics.median(self.bad)

    @property
    def difference(self) -> float:
        good, bad = self.medians
        return bad - good

    @property
    def is_decided(self) -> bool:
        return max(self.good) < min(self.bad) or max(self.bad) < min(self.good)

    @property
    def ratio(self) -> float | None:
        """None where one is nought, as of an operator that one version does not call."""
        good, bad = self.medians
        return bad / good if good and bad else None

    @property
    def extremes(self) -> tuple[float, float] | None:
        """The smallest and largest ratio of any two samples."""
        if not min(self.good) or not min(self.bad):
            return None
        return min(self.bad) / max(self.good), max(self.bad) / min(self.good)

    def facts(self) -> dict[str, Any]:
        good, bad = self.medians
        return {"good": good, "bad": bad, "difference": self.difference, "ratio": self.ratio,
                "extremes": self.extremes, "decided": self.is_decided, "samples": len(self.good)}  # fmt: skip


@dataclass
class Row:
    """All calls of one kind at one line."""

    kind: str
    line: str
    phase: str
    sites: list[tuple[Indices, Indices]] = field(default_factory=list)  # operators of the good and of the bad trace
    seconds: Compared = Compared((0.0,), (0.0,))
    output_bytes: tuple[int, int] = (0, 0)


def rows_of(
    good: Trace, bad: Trace, alignment: Alignment, good_ns: Sequence[Sequence[int]], bad_ns: Sequence[Sequence[int]]
) -> list[Row]:
    """Every kind and line, those first whose time moved most. `good_ns`, `bad_ns`: of each run, nanoseconds of each
    operator."""
    sites: list[tuple[Indices, Indices]] = [((g,), (b,)) for g, b in alignment.pairs]
    sites += [(tuple(region.good), tuple(region.bad)) for region in alignment.regions]
    found: dict[tuple[str, str, str], Row] = {}
    for g, b in sites:
        first = bad.operators[b[0]] if b else good.operators[g[0]]
        before, after = short(names_of(good, g)), short(names_of(bad, b))
        same = len(g) == len(b) == 1 and good.operators[g[0]].name == first.name
        kind = first.name if same else f"{before} -> {after}"
        row = found.setdefault((kind, first.line, first.phase), Row(kind, first.line, first.phase))
        row.sites.append((g, b))
    for row in found.values():
        own = [[index for site in row.sites for index in site[side]] for side in (0, 1)]
        row.seconds = Compared(_sums(good_ns, own[0]), _sums(bad_ns, own[1]))
        row.output_bytes = output_bytes(good, own[0]), output_bytes(bad, own[1])
    return sorted(found.values(), key=lambda row: -abs(row.seconds.difference))


def _sums(runs: Sequence[Sequence[int]], indices: Sequence[int]) -> tuple[float, ...]:
    return tuple(sum(run[index] for index in indices) * 1e-9 for run in runs)


def largest(row: Row, good_ns: Sequence[int], bad_ns: Sequence[int]) -> tuple[Indices, Indices]:
    """The call that takes longest, of those that both versions make."""
    both = [site for site in row.sites if site[0] and site[1]]
    return max(both, key=lambda site: sum(good_ns[i] for i in site[0]) + sum(bad_ns[i] for i in site[1]),
               default=((), ()))  # fmt: skip


def output_bytes(trace: Trace, indices: Iterable[int]) -> int:
    """Of what these operators return, but for views and what is written in place."""
    every = (trace.operators[index] for index in indices)
    values = (value for each in every if not _is_in_place(each.name) for value in each.outputs if value.digest)
    return sum(map(size_bytes, values))


def _is_in_place(name: str) -> bool:
    return name.partition(".")[0].endswith("_")


def size_bytes(value: Value) -> int:
    """By its type, such as float32[2, 3]."""
    found = TYPE.fullmatch(value.type)
    if found is None:
        return 0
    count = 1
    for size in filter(None, found[2].split(", ")):
        count *= int(size)
    return count * (int(found[1] or 8) // 8)


def shares(rows: Sequence[Row], whole: Compared, shown: int) -> tuple[float | None, float | None]:
    """How much of the whole script's difference all rows, and those that are shown, add up to; None where the whole's
    is not decided."""
    if not whole.is_decided:
        return None, None
    sums = [sum(row.seconds.difference for row in some) for some in (rows, rows[:shown])]
    return sums[0] / whole.difference, sums[1] / whole.difference

