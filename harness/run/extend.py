"""Which launches a run still needs to decide what it can: pure, from the plan and the launches that were recorded.

After the planned blocks, and again at each number of launches of `decide.look_counts`, all rows are judged together
as the report judges them. A row that is undecided in some environment, and that more launches could decide, goes on in
all environments together. Rows that ended stay ended, and are not measured again.

Each look judges the launches before it alone, so that it says the same whenever it is asked: an interrupted run goes on
where it stopped, and one that ended stays ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.config.plan import Plan, PlannedLaunch
from harness.schema.records import Device, LaunchRecord
from harness.stats import decide
from harness.stats.medians import COLD, HOT, time_us
from harness.worker import protocol

Times = dict[int, float]  # launch medians in microseconds, by block
Place = tuple[str, str, str, str, str, str]  # environment, kernel, device, workload, target, mode
Subject = tuple[str, Device, str, str]  # in the launches of which kernel, device, workload, target


@dataclass(frozen=True, kw_only=True)
class TimedRow:
    """One target against the same in the baseline, timed one way, in the launches of `kernel`."""

    subject: Subject
    base: Times
    this: Times

    def before(self, count: int) -> tuple[list[float], list[float]]:
        blocks = sorted(block for block in self.base.keys() & self.this.keys() if block < count)
        return [self.base[block] for block in blocks], [self.this[block] for block in blocks]


def times_of(launches: Iterable[LaunchRecord]) -> dict[Place, Times]:
    times: dict[Place, Times] = {}
    for launch in launches:
        for timing in launch.timings:
            for mode in (COLD, HOT):
                time = time_us(timing, mode)
                if time is not None:
                    place = (launch.environment, launch.kernel, launch.device, timing.workload, timing.target, mode)
                    times.setdefault(place, {})[launch.index] = time
    return times


def rows_of(plan: Plan, times: dict[Place, Times]) -> Iterator[TimedRow]:
    """As the report has them: each kernel, and each reference once, in the first kernel's launches that have both."""
    seen: set[tuple[str, str, str, str, str]] = set()
    for cell in plan.cells:
        if cell.environment == plan.baseline or cell.environment not in plan.measured:
            continue
        references = plan.kernel(cell.kernel).references_on(cell.device)
        for target in (protocol.KERNEL, *references, *(name + protocol.BACKWARD for name in references)):
            for mode in (COLD, HOT):
                own = cell.kernel if target == protocol.KERNEL else ""
                base, this = (
                    times.get((environment, cell.kernel, cell.device, cell.workload, target, mode))
                    for environment in (plan.baseline, cell.environment)
                )
                identity = (cell.environment, own + ":" + target, cell.device, cell.workload, mode)
                if base and this and base.keys() & this.keys() and identity not in seen:
                    seen.add(identity)
                    yield TimedRow(subject=(cell.kernel, cell.device, cell.workload, target), base=base, this=this)


def undecided(plan: Plan, rows: Sequence[TimedRow], ends: Mapping[Subject, int], looks: int) -> set[Subject]:
    """What must go on. `ends`: how many launches of each count."""
    rule = decide.DecisionRule(
        confidence=plan.thresholds.confidence,
        rate=plan.thresholds.false_discovery_rate,
        rows=len(rows),
        looks=looks,
    )
    pairs = [row.before(ends[row.subject]) for row in rows]
    kept = [(row, pair) for row, pair in zip(rows, pairs, strict=True) if pair[0]]
    least = [plan.thresholds.min_effect(row.subject[1]) for row, _ in kept]
    decided = decide.decide_rows([pair for _, pair in kept], least, rule.confidence, rule.rate, looks)
    going = set()
    for (row, _), min_effect, (estimate, _, verdict) in zip(kept, least, decided, strict=True):
        if decide.goes_on(estimate, verdict, rule, min_effect, plan.most_launches):
            going.add(row.subject)
    return going


def further(plan: Plan, launches: Collection[LaunchRecord]) -> list[PlannedLaunch]:
    """The next launches that are due beyond the planned ones; none where the run is complete."""
    if plan.most_launches == plan.launches_each:
        return []
    counts = decide.look_counts(plan.launches_each, plan.most_launches)
    there = {(each.environment, each.kernel, each.device, each.index) for each in launches}
    rows = list(rows_of(plan, times_of(launches)))
    going = {row.subject for row in rows}
    ends = dict.fromkeys(going, counts[0])
    for count in counts[1:]:
        going &= undecided(plan, rows, ends, len(counts))
        ends |= dict.fromkeys(going, count)
        due = [
            replace(launch, rows=measured)
            for launch in plan.more_launches
            if launch.index < count
            and (measured := _rows_in(launch, going))
            and (launch.environment, launch.kernel, launch.device, launch.index) not in there
        ]
        if due:
            return due
    return []


def _rows_in(launch: PlannedLaunch, subjects: Collection[Subject]) -> frozenset[tuple[str, str]]:
    """(workload, target) of what a launch measures of these."""
    return frozenset(
        (workload, target)
        for kernel, device, workload, target in subjects
        if (kernel, device) == (launch.kernel, launch.device)
    )
