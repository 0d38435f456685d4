"""fast_p over problems in KernelBench's form, as its paper defines it (Ouyang et al., arXiv 2502.10517): of all
problems the share whose solution is correct and whose speed-up over the reference ``Model`` exceeds p. Pure.

A speed-up is the median, over launches, of the ratio of the two medians within a launch. Its interval says how sure
that is, not on which side of p it counts: a problem counts by the point estimate, as the definition has it, and those
whose interval holds p, or that have none, are counted beside it as undecided.

Correct is what passed validation in that environment, and was not found out in any of its launches.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from harness.schema.records import LaunchRecord, ValidationRecord
from harness.worker import protocol
from reports.compare.latency import Launch, Rows
from reports.compare.statistics import median_interval
from reports.compare.streams import SENTENCE, escapes
from reports.load.evidence import Evidence

LEVELS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)  # p
NOT_ITS_FAULT = frozenset({"not_run", "broken", "undecidable"})


@dataclass(frozen=True, kw_only=True)
class Solution:
    """One pair in one environment. `speedup` is None where one side has no times; the interval where launches are too
    few. `why` says what is wrong, or missing."""

    problem: str
    kernel: str
    workload: str
    correct: bool
    why: str
    speedup: float | None
    low: float | None
    high: float | None
    launches: int
    left_out: bool

    def exceeds(self, p: float) -> bool:
        """fast_0 is the share of correct ones, whether they were timed or not."""
        return self.correct and (p == 0 or (self.speedup is not None and self.speedup > p))

    def undecided(self, p: float) -> bool:
        if not self.correct or p == 0 or self.speedup is None:
            return False
        return self.low is None or self.high is None or self.low <= p < self.high


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of one environment on one device. `problems` is what the shares are of: `missing` problems without a solution
    are among them where they were asked to be."""

    environment: str
    device: str
    problems: int
    missing: int
    counts_missing: bool
    left_out: int
    fast: dict[str, float]
    undecided: dict[str, int]
    solutions: list[Solution]


def scores(evidence: Evidence, rows: Rows, count_missing: bool = False) -> list[Score]:
    """Per environment and device, of the run's folders or else of the problem files that its matrix names. An
    environment that could not be used has no score: nothing is known of any solution there."""
    run = evidence.run
    names = {workload.id: workload.name for workload in run.workloads if workload.problem}
    pairs = run.kernelbench.pairs if run.kernelbench else {}
    whole = set(pairs) <= {kernel.name for kernel in run.kernels}  # of some alone (--kernel), nobody asked for the rest
    missing = len(run.kernelbench.missing) if run.kernelbench and whole else 0
    places: dict[tuple[str, str], list[Solution]] = {}
    for cell in run.cells:
        known = evidence.environments.get(cell.environment)
        if cell.workload in names and (known is None or known.status == "ok"):
            problem = pairs.get(cell.kernel, names[cell.workload])
            found = solution(evidence, rows, cell.environment, cell.kernel, cell.device, cell.workload, problem)
            places.setdefault((cell.environment, cell.device), []).append(found)
    return [
        score(environment, device, found, missing, count_missing) for (environment, device), found in places.items()
    ]


def score(environment: str, device: str, found: list[Solution], missing: int, count_missing: bool) -> Score:
    counted = [each for each in found if not each.left_out]
    problems = len(counted) + (missing if count_missing else 0)
    return Score(
        environment=environment,
        device=device,
        problems=problems,
        missing=missing,
        counts_missing=count_missing,
        left_out=len(found) - len(counted),
        fast={f"{p:g}": sum(each.exceeds(p) for each in counted) / problems if problems else 0.0 for p in LEVELS},
        undecided={f"{p:g}": sum(each.undecided(p) for each in counted) for p in LEVELS},
        solutions=found,
    )


def solution(
    evidence: Evidence, rows: Rows, environment: str, kernel: str, device: str, workload: str, problem: str
) -> Solution:
    record = evidence.validation(environment, kernel, workload, device)
    mine = rows.of(environment, kernel, device, workload, protocol.KERNEL)
    theirs = rows.of(environment, kernel, device, workload, protocol.MODEL)
    ends = evidence.launch_records.get((environment, kernel, device), [])
    refused = bool(theirs) and not any(row.status == "ok" for row in theirs)  # `Model` itself does not run here
    wrong = "" if refused else _wrong(record, mine, ends)
    unknown = "" if wrong else _unknown(record, mine, theirs)
    times = {row.block: row.median_us for row in theirs if row.status == "ok"}
    ratios = [
        times[row.block] / row.median_us for row in mine if row.status == "ok" and row.block in times and not wrong
    ]
    interval = median_interval(ratios, evidence.confidence)
    return Solution(
        problem=problem,
        kernel=kernel,
        workload=workload,
        correct=not wrong and not refused and record is not None and record.status == "ok",
        why=wrong or unknown,
        speedup=statistics.median(ratios) if ratios else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        launches=len(ratios),
        left_out=not wrong and (record is None or record.status in NOT_ITS_FAULT or not times),
    )


def _wrong(record: ValidationRecord | None, mine: list[Launch], ends: list[LaunchRecord]) -> str:
    """What the solution did, in validation or in a launch; '' where nothing is held against it."""
    if record is not None and record.status not in ("ok", *NOT_ITS_FAULT):
        return f"{record.status.replace('_', ' ')}: {record.message or 'no message'}"
    for row in mine:
        if row.status not in ("ok", *NOT_ITS_FAULT):
            return f"{row.status.replace('_', ' ')} in launch {row.block + 1}: {row.message or 'no message'}"
        if row.correct is False:
            return f"launch {row.block + 1}: {row.message or 'its output is not the validated one'}"
    escaped = next((end for end in ends if any(map(escapes, end.timings))), None)
    if escaped is not None:
        return f"launch {escaped.index + 1}: {SENTENCE}"
    for end in ends:  # a launch that ended before it gave any row
        if end.status not in ("ok", *NOT_ITS_FAULT):
            return f"{end.status.replace('_', ' ')} in launch {end.index + 1}: {end.message or 'no message'}"
    return ""


def _unknown(record: ValidationRecord | None, mine: list[Launch], theirs: list[Launch]) -> str:
    if record is None or record.status in NOT_ITS_FAULT:
        return (record.message if record else "") or "not validated"
    if not any(row.status == "ok" for row in theirs):
        return next((row.message for row in theirs if row.message), "") or "the reference has no times"
    return "" if any(row.status == "ok" for row in mine) else "no times"
