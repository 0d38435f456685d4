"""Times of a case that were called slower or faster, and what else was measured in the same launches. Pure.

Targets of the same launches are each other's controls: where one got slower and every other target of the same
process did not, the machine is not the reason, and the reverse.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from harness.schema.records import LaunchRecord, TargetTiming
from harness.schema.run_records import RunRecord
from harness.worker import protocol
from reports import model
from reports.attribute import thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.cells import CellFacts
from reports.model import Comparison, Latency, Seen
from reports.text import apart, matrix_command

CALLED = (model.REGRESSED, model.IMPROVED)
Side = TypeVar("Side")
Sides = tuple[list[float], list[float]]  # by launch, of the baseline and of this environment


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """All other rows with times of one environment, device and mode, by verdict."""

    total: int
    alike: int
    steady: int
    against: int
    median_ratio: float

    @property
    def everywhere(self) -> bool:
        """Most targets moved alike, and none stood still: the machine or the stack, and not one of them."""
        return self.alike >= max(2, thresholds.MOSTLY * self.total) and not self.steady and not self.against


@dataclass(frozen=True, kw_only=True)
class TimeChange:
    """The cells of one case that were called slower, or faster, in one mode."""

    case: CaseFacts
    verdict: str
    mode: str
    cells: tuple[CellFacts, ...]
    around: Neighbours

    def latency(self, cell: CellFacts) -> Latency:
        return cell.row.modes.get(self.mode, cell.row.latency)

    @property
    def word(self) -> str:
        return "slower" if self.sign > 0 else "faster"

    @property
    def sign(self) -> int:
        return 1 if self.verdict == model.REGRESSED else -1

    def slower_first(self, base: Side, this: Side) -> tuple[Side, Side]:
        return (this, base) if self.sign > 0 else (base, this)

    @property
    def slower_environment(self) -> str:
        return self.slower_first(*self.case.environments)[0]

    @cached_property
    def ratios(self) -> list[float]:
        return [ratio for cell in self.cells if (ratio := self.latency(cell).ratio)]

    # -- the machine ------------------------------------------------------------------------------------------

    @property
    def clock_told(self) -> bool:
        """Whether the clock of the first cell's launches changed by what a card mentions."""
        moved = clock_ratio(self.cells[0].row.latency)
        return self.cells[0].row.hot is not None and moved is not None and abs(moved - 1) > thresholds.CLOCK_TOLD

    @property
    def clock(self) -> float:
        """The GPU's clock here over that of the baseline's launches."""
        ratios = [ratio for cell in self.cells if (ratio := clock_ratio(self.latency(cell))) is not None]
        return statistics.median(ratios) if ratios else 1.0

    @property
    def clock_moved(self) -> bool:
        """Lower where it is slower."""
        return abs(self.clock - 1) > thresholds.CLOCK_MOVED and math.log(self.clock) * self.sign < 0

    def loads(self, kind: str) -> Sides:
        base, this = (loads(self.case, environment)[kind] for environment in self.case.environments)
        return base, this

    def busier(self, kind: str) -> bool:
        """Whether the slower side's launches had a busier machine, in the median."""
        base, this = self.loads(kind)
        moved = statistics.median(this) - statistics.median(base) if base and this else 0.0
        return moved * self.sign > thresholds.BUSIER

    @cached_property
    def loads_seen(self) -> list[Seen]:
        """Where the machine was busier, or its processors' clock lower, in the launches of the slower side."""
        seen, versions = [], self.case.versions
        for kind, who in (("busy", "other processes used"), ("steal", "other machines on its host took")):
            if self.busier(kind):
                one, two = map(statistics.median, self.loads(kind))
                seen.append(Seen(text=f"{who} {apart(versions, f'{one:.0%} of the machine', f'{two:.0%}')}"))
        base, this = self.loads("clock")
        if base and this:
            one, two = statistics.median(base), statistics.median(this)
            if (two / one - 1) * self.sign < -thresholds.CLOCK_MOVED:
                seen.append(Seen(text=f"the processor ran at {apart(versions, f'{one:.0f} MHz', f'{two:.0f}')}"))
        return seen

    # -- threads ----------------------------------------------------------------------------------------------

    @property
    def threads(self) -> tuple[int | None, int | None]:
        base, this = (torch_threads(self.case, environment) for environment in self.case.environments)
        return base, this

    @property
    def same_threads(self) -> int | None:
        """PyTorch's threads in both environments, where that is one number."""
        one, two = self.threads
        return one if one == two else None

    def timings(self, cell: CellFacts, environment: str) -> list[tuple[LaunchRecord, TargetTiming]]:
        """Of all launches that measured this cell."""
        key = (environment, cell.timed_with, self.case.device)
        launches = self.case.evidence.launch_records.get(key, [])
        return [(launch, timing) for launch in launches for timing in launch.timings if timing.status == "ok"]

    def of_calls(self, cell: CellFacts, read: Callable[[LaunchRecord, TargetTiming], float | None]) -> Sides | None:
        """What is read of one target's timings, by launch, on both sides; None where too few recorded it."""
        target = cell.target + (protocol.BACKWARD if self.mode == model.BACKWARD else "")
        base, this = (
            [
                value
                for launch, timing in self.case.evidence.timings(
                    environment, cell.timed_with, self.case.device, cell.workload, target
                )
                if timing.status == "ok" and (value := read(launch, timing)) is not None
            ]
            for environment in self.case.environments
        )
        return (base, this) if min(len(base), len(this)) >= thresholds.FEWEST_LAUNCHES else None

    def at_work(self, cell: CellFacts) -> Sides | None:
        """Processors that its calls kept busy, in each launch, without what its process does besides."""
        return self.of_calls(cell, _processors_at_work)

    @property
    def at_work_alike(self) -> bool:
        """Whether every cell's calls keep as many processors busy on both sides: then it is not by threads that they
        became slower. False where that was not recorded."""
        for cell in self.cells:
            sides = self.at_work(cell)
            if sides is None:
                return False
            one, two = map(statistics.median, sides)
            if not one or not two or max(one / two, two / one) > thresholds.AS_BUSY:
                return False
        return True


def _processors_at_work(launch: LaunchRecord, timing: TargetTiming) -> float | None:
    busy = timing.busy_processors
    return None if busy is None else max(0.0, busy - (launch.idle_processors or 0.0))


def clock_ratio(latency: Latency) -> float | None:
    one, two = latency.baseline.gpu, latency.this.gpu
    if one is None or two is None or not one.sm_mhz or not two.sm_mhz:
        return None
    return two.sm_mhz / one.sm_mhz


def processors(case: CaseFacts) -> int | None:
    cores = case.evidence.run.host.get("cores", "")
    return int(cores) if cores.isdigit() and int(cores) else None


def loads(case: CaseFacts, environment: str) -> dict[str, list[float]]:
    """What the machine was like in an environment's launches: shares of its processors, and their clock in MHz."""
    known, key = case.evidence.loads, (environment, case.device)
    if key not in known:
        known[key] = _loads(case, environment)
    return known[key]


def _loads(case: CaseFacts, environment: str) -> dict[str, list[float]]:
    found: dict[str, list[float | None]] = {"busy": [], "steal": [], "clock": [], "own": []}
    cores = processors(case) or 1
    for kernel in case.evidence.run.kernels:
        for launch in case.evidence.launch_records.get((environment, kernel.name, case.device), []):
            if launch.idle_processors is not None:
                found["own"].append(launch.idle_processors / cores)
            if launch.load is not None:
                found["busy"].append(launch.load.busy_share_others)
                found["steal"].append(launch.load.steal_share)
                found["clock"].append(launch.load.cpu_mhz)
    return {name: [value for value in values if value is not None] for name, values in found.items()}


def torch_threads(case: CaseFacts, environment: str) -> int | None:
    """PyTorch's threads in the launches, else when the environment was observed."""
    kernels = [case.kernel] if case.is_kernel else [kernel.name for kernel in case.evidence.run.kernels]
    for kernel in kernels:
        launches = case.evidence.launch_records.get((environment, kernel, case.device), [])
        known = {launch.threads for launch in launches if launch.threads}
        if len(known) == 1:
            return known.pop()
    stack = case.evidence.environments.get(environment)
    return stack.observed.threads if stack is not None and stack.observed is not None else None


def leans(latency: Latency) -> bool:
    """Whether the whole interval lies beyond the smallest effect that counts, and only the test is not sure enough."""
    if latency.verdict != model.UNDECIDED or latency.low is None or latency.high is None:
        return False
    bound = 1 + latency.min_effect
    return latency.low > bound or latency.high < 1 / bound


def time_changes(cases: Sequence[CaseFacts]) -> list[TimeChange]:
    """One for each group of a case's rows that were called in the same direction."""
    rows = [cell.row for case in cases for cell in case.cells]
    found = []
    for case in cases:
        if case.alone or case.rows[0].control:
            continue
        groups: dict[tuple[str, str], list[CellFacts]] = {}
        for cell in case.cells:
            mode, latency = leading(cell.row)
            if latency.verdict in CALLED:
                groups.setdefault((latency.verdict, mode), []).append(cell)
        for (verdict, mode), cells in groups.items():
            around = _around(rows, case, mode, verdict)
            found.append(TimeChange(case=case, verdict=verdict, mode=mode, cells=tuple(cells), around=around))
    return found


def leading(row: Comparison) -> tuple[str, Latency]:
    """The mode that was called a change: cold, which holds whatever a call costs, before others."""
    called = ((mode, timed) for mode, timed in row.modes.items() if timed.verdict in CALLED)
    return next(called, (model.COLD, row.latency))


def _around(rows: Sequence[Comparison], case: CaseFacts, mode: str, verdict: str) -> Neighbours:
    subject = case.rows[0].kind, case.rows[0].target
    timed = [
        (row, row.modes[mode])
        for row in rows
        if (row.environment, row.device) == (case.environment, case.device) and mode in row.modes
    ]
    ratios = [latency.ratio for _, latency in timed if latency.ratio is not None]
    others = [latency for row, latency in timed if latency.ratio is not None and (row.kind, row.target) != subject]
    verdicts = Counter(latency.verdict for latency in others)
    return Neighbours(
        total=len(others),
        alike=verdicts[verdict],
        steady=verdicts[model.PASS],
        against=sum(verdicts[other] for other in CALLED if other != verdict),
        median_ratio=statistics.median(ratios) if ratios else 1.0,
    )


FEWEST, ENOUGH = 2, 10  # launches of which nothing can be said, and what they are by default


def launches_command(run: RunRecord, kernel: str, device: str, timed: Iterable[Latency]) -> str:
    """Return the launches that would decide times which are undecided; empty where nobody can tell how many."""
    timed = list(timed)
    needed = [each.launches_needed for each in timed if each.launches_needed]
    undecided = [each for each in timed if each.verdict == model.UNDECIDED]
    if any(len(side.blocks) < FEWEST for each in undecided for side in (each.baseline, each.this)):
        needed.append(ENOUGH)
    if not needed:
        return ""
    both = " (for each of the two runs, then compare them again)" if run.sides else ""
    return f"{matrix_command(run.command, kernel=kernel, device=device)} --launches {max(needed)}{both}"
