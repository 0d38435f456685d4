"""What is known of the releases between two: whether they differ, which is asked next, where something changed. Pure.

A pass rate is compared as a rate: Fisher's exact test, one input distribution at a time. Versions whose float64 results
of a problem differ by more than rounding compute different things, whatever their rates. A time is compared as a whole
interval: it differs where the interval of the ratio lies beyond the smallest effect that counts. Two versions that were
never in one round are compared over the good one, which each was timed with: the interval of their ratio is then that
of both intervals' worst corners, which is wide, and never too narrow.

Chance may do `ERROR_RATE` over all cells and input distributions of one comparison (Bonferroni). A version that is like
both of its neighbours, which differ, is inconclusive: more trials would tell.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from harness.run.folders import now_utc
from harness.schema.bisection_records import (
    BisectionRecord,
    CellSeen,
    Probe,
    ProbeVerdict,
    Question,
    SketchDifference,
    Step,
    TruthSketch,
)
from harness.stats.outputs import rates_differ
from harness.worker import protocol

ERROR_RATE = 0.02
SAME_TRUTH = 2.0**-34  # of the largest magnitude: of projections, which average what rounding does to elements
COMPARED = (ProbeVerdict.GOOD, ProbeVerdict.BAD, ProbeVerdict.NEITHER)
Cells = Collection[CellSeen]


def most_environments(versions: int) -> int:
    """Return how many environments a bisection of so many versions needs at most, where one step explains it."""
    return math.ceil(math.log2(versions)) + 2


# -- two versions ---------------------------------------------------------------------------------------------------


def find_differing(cells: Cells, others: Cells) -> list[str]:
    """Return the cells in which two versions are shown to differ."""
    by_name = {seen.cell: seen for seen in others}
    pairs = [(seen, by_name[seen.cell]) for seen in cells if seen.cell in by_name]
    comparisons = sum(max(1, len(cell.rates)) for cell, _ in pairs)
    return [cell.cell for cell, other in pairs if _differ(cell, other, ERROR_RATE / comparisons)]


def _differ(cell: CellSeen, other: CellSeen, level: float) -> bool:
    statuses = {cell.status, other.status}
    if protocol.NOT_RUN in statuses:  # what the harness could not do says nothing of a version
        return False
    if not statuses <= set(protocol.RAN):  # a version that refuses is not like one that answers
        return len(statuses) > 1
    if cell.low and cell.high and other.low and other.high:
        beyond = 1 + cell.min_effect
        return other.low / cell.high > beyond or other.high / cell.low < 1 / beyond
    pairs = [(cell.rates[name], other.rates[name]) for name in cell.rates.keys() & other.rates.keys()]
    p_values = [rates_differ(one.passed, one.trials, two.passed, two.trials) for one, two in pairs]
    return min(p_values, default=1.0) <= level or truths_differ(cell.truths, other.truths)


def truths_differ(truths: Mapping[str, TruthSketch], others: Mapping[str, TruthSketch]) -> bool:
    """Return whether some float64 result that both versions have is not the same thing in both."""
    for name in truths.keys() & others.keys():
        one, other = truths[name], others[name]
        if (one.shape, one.nonfinite_sha256) != (other.shape, other.nonfinite_sha256):
            return True
        if abs(one.projection - other.projection) > SAME_TRUTH * max(one.largest, other.largest):
            return True
    return False


# -- all versions -----------------------------------------------------------------------------------------------------


@dataclass
class Probes:
    """What is known of the releases of a question, by version."""

    question: Question
    by_version: dict[str, Probe] = field(default_factory=dict)

    @property
    def good(self) -> Probe:
        return self.by_version[self.question.good]

    @property
    def bad(self) -> Probe:
        return self.by_version[self.question.bad]

    @property
    def known(self) -> list[Probe]:
        """Return the probes in the order of the releases."""
        versions = [release.version for release in self.question.releases]
        return [self.by_version[version] for version in versions if version in self.by_version]

    @property
    def compared(self) -> list[Probe]:
        """Return those that gave an answer."""
        return [probe for probe in self.known if probe.verdict in COMPARED]

    def list_between(self, left: Probe, right: Probe) -> list[str]:
        """Return the versions between two, whether they can be asked or not."""
        versions = [release.version for release in self.question.releases]
        return versions[versions.index(left.version) + 1 : versions.index(right.version)]

    def next_version(self) -> str | None:
        """Return the version in the middle of the leftmost step; None where every step is found.

        Where every version is wanted, those between neighbours that do not differ are asked after the steps.
        """
        skipped = {release.version for release in self.question.releases if release.skipped}
        alike = None
        for left, right in pairwise(self.compared):
            left_to_ask = [v for v in self.list_between(left, right) if v not in skipped | self.by_version.keys()]
            if left_to_ask:
                middle = left_to_ask[len(left_to_ask) // 2]
                if find_differing(left.cells, right.cells):
                    return middle
                alike = alike or middle
        return alike if self.question.every else None

    def find_neighbours(self, version: str) -> tuple[Probe, Probe]:
        """Return the nearest versions on both sides that were compared."""
        pairs = pairwise(self.compared)
        return next((left, right) for left, right in pairs if version in self.list_between(left, right))

    def find_verdict(self, version: str, cells: Cells) -> ProbeVerdict:
        """Return the verdict of the first version that these cells are not shown to differ from."""
        left, right = self.find_neighbours(version)
        is_unlike_left, is_unlike_right = (bool(find_differing(cells, other.cells)) for other in (left, right))
        if not is_unlike_left and not is_unlike_right and find_differing(left.cells, right.cells):
            return ProbeVerdict.INCONCLUSIVE
        if not is_unlike_left:
            return left.verdict
        others = (right, self.good, self.bad)
        like = (other.verdict for other in others if not find_differing(cells, other.cells))
        return next(like, ProbeVerdict.NEITHER)

    def conclude(self) -> BisectionRecord:
        """Return the record of a bisection of which nothing is left to ask."""
        usable = sum(not release.skipped for release in self.question.releases)
        verdicts = [verdict for verdict, _ in groupby(probe.verdict for probe in self.compared)]
        steps = [self._describe(left, right) for left, right in pairwise(self.compared)]
        return BisectionRecord(
            question=self.question,
            probes=self.known,
            steps=[step for step in steps if step.differences],
            monotonic=len(verdicts) == len(set(verdicts)),  # no version is like an earlier one again
            most_environments=most_environments(usable),
            finished_utc=now_utc(),
        )

    def _describe(self, before: Probe, after: Probe) -> Step:
        earlier, later = ({cell.cell: cell.truths for cell in probe.cells} for probe in (before, after))
        return Step(
            before=before.version,
            after=after.version,
            unknown=self.list_between(before, after),
            differences=[
                SketchDifference(cell=name, computes_else=truths_differ(earlier[name], later[name]))
                for name in find_differing(before.cells, after.cells)
            ],
        )
