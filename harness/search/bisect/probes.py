"""What is known of the releases between two, and what follows from it: the next version to ask, steps, the answer."""

from __future__ import annotations

from harness.run.folders import now_utc
from harness.schema.bisection_records import BisectionRecord, CellSeen, Difference, Probe, ProbeVerdict, Question, Step
from harness.search.bisect import order
from harness.search.bisect.compare import find_differing
from harness.search.bisect.sketches import sketches_differ


class Probes:
    """What is known of the releases of a question, by version. Pure, but for the time of the answer."""

    def __init__(self, question: Question, probes: list[Probe] | None = None) -> None:
        self.question = question
        self.versions = [release.version for release in question.releases]
        self.by_version = {probe.version: probe for probe in probes or ()}

    @property
    def good(self) -> Probe:
        return self.by_version[self.question.good]

    @property
    def bad(self) -> Probe:
        return self.by_version[self.question.bad]

    def next_version(self) -> str | None:
        """Return the version to ask next; None where every step is found."""
        told = self._told()
        closed = {i for i, release in enumerate(self.question.releases) if release.skipped}
        closed |= {i for i, version in enumerate(self.versions) if version in self.by_version}
        index = order.next_version(told, closed, self._differ, every=self.question.every)
        return None if index is None else self.versions[index]

    def find_neighbours(self, version: str) -> tuple[Probe, Probe]:
        """Return the nearest versions on both sides that were compared."""
        place = self.versions.index(version)
        told = self._told()
        before = max(index for index in told if index < place)
        after = min(index for index in told if index > place)
        return self.by_version[self.versions[before]], self.by_version[self.versions[after]]

    def find_verdict(self, cells: list[CellSeen], left: Probe, right: Probe) -> ProbeVerdict:
        """Return the verdict of the first version that these cells are not shown to differ from."""
        for other in (left, right, self.good, self.bad):
            if not find_differing(cells, other.cells):
                return other.verdict
        return ProbeVerdict.NEITHER

    def conclude(self) -> BisectionRecord:
        """Return the record of a bisection of which nothing is left to ask."""
        told = self._told()
        usable = sum(not release.skipped for release in self.question.releases)
        return BisectionRecord(
            question=self.question,
            probes=[self.by_version[version] for version in self.versions if version in self.by_version],
            steps=[self._describe(*step) for step in order.find_steps(told, self._differ)],
            monotonic=order.is_monotonic(self.by_version[self.versions[index]].verdict for index in told),
            most_environments=order.most_environments(usable),
            finished_utc=now_utc(),
        )

    def _told(self) -> list[int]:
        no_answer = (ProbeVerdict.INCONCLUSIVE, ProbeVerdict.SKIPPED)
        probes = enumerate(map(self.by_version.get, self.versions))
        return [index for index, probe in probes if probe is not None and probe.verdict not in no_answer]

    def _differ(self, left: int, right: int) -> bool:
        before, after = (self.by_version[self.versions[index]] for index in (left, right))
        return bool(find_differing(before.cells, after.cells))

    def _describe(self, left: int, right: int) -> Step:
        before, after = (self.by_version[self.versions[index]] for index in (left, right))
        names = find_differing(before.cells, after.cells)
        truths = [{cell.cell: cell.truths for cell in probe.cells} for probe in (before, after)]
        return Step(
            before=before.version,
            after=after.version,
            unknown=self.versions[left + 1 : right],
            differences=[
                Difference(cell=name, computes_else=sketches_differ(*(own[name] for own in truths))) for name in names
            ],
        )
