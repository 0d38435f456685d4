"""fast_p as KernelBench's paper defines it (Ouyang et al., arXiv 2502.10517): the share of problems whose kernel is
correct and more than p times as fast as the reference. Pure.

A speed-up is the median, over launches, of the reference's median over the kernel's within the same launch, so that a
launch's luck cancels. A problem counts by this point estimate, as the definition has it; those whose interval holds p,
or that have no interval, are counted beside it as undecided.

Scores are of problem files, whose reference is their own ``Model``.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from harness.schema.records import LaunchRecord, ValidationRecord
from harness.schema.run_records import Cell
from harness.worker import protocol
from reports.compare.correctness import OFF_STREAM
from reports.compare.identical import blocked_places
from reports.compare.latency import median_interval
from reports.load.evidence import Evidence
from reports.load.launches import Launch, escapes
from reports.text import ratio_interval, words

LEVELS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)  # p
NOT_ITS_FAULT = frozenset({"not_run", "broken", "undecidable"})


@dataclass(frozen=True, kw_only=True)
class Solution:
    """One pair in one environment. `speedup` is None where one side has no times; the interval where launches are too
    few. `why` says what is wrong, or missing, and `no_ratio` why the control permits no speed-up."""

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
    no_ratio: str = ""

    @property
    def speedup_text(self) -> str:
        """1.31x [1.28, 1.35]: over the reference, above 1 is faster."""
        if self.no_ratio:
            return "correct; no ratio: see the control"
        return "correct; no times" if self.speedup is None else ratio_interval(self.speedup, self.low, self.high, ".3g")

    def exceeds(self, p: float) -> bool:
        """fast_0 is the share of correct ones, whether they were timed or not."""
        return self.correct and (p == 0 or (self.speedup is not None and self.speedup > p))

    def undecided(self, p: float) -> bool:
        if not self.correct or p == 0 or self.speedup is None:
            return bool(self.no_ratio) and p > 0
        return self.low is None or self.high is None or self.low <= p < self.high


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of one environment on one device. `problems` is what the shares are of: `missing` problems without a solution
    are among them where `counts_missing`."""

    environment: str
    device: str
    problems: int
    missing: int
    counts_missing: bool
    left_out: int
    fast: dict[str, float]
    undecided: dict[str, int]
    solutions: list[Solution]


def scores(evidence: Evidence, count_missing: bool = False) -> list[Score]:
    """Per environment and device, of the run's folders or else of the problem files that its matrix names. An
    environment that could not be used has no score: nothing is known of any solution there."""
    run = evidence.run
    solved = {id for kernel in run.kernels if not kernel.pytorch for id in kernel.workloads}
    names = {workload.id: workload.name for workload in run.workloads if workload.problem and workload.id in solved}
    pairs = run.kernelbench.pairs if run.kernelbench else {}
    whole = set(pairs) <= {kernel.name for kernel in run.kernels}  # with --kernel the other problems are not missing
    missing = len(run.kernelbench.missing) if run.kernelbench and whole else 0
    blocked = blocked_places(evidence)
    places: dict[tuple[str, str], list[Solution]] = {}
    for cell in run.cells:
        known = evidence.environments.get(cell.environment)
        if cell.workload in names and (known is None or known.status == "ok"):
            problem = pairs.get(cell.kernel, names[cell.workload])
            found = solution(evidence, cell, problem, blocked.get((cell.environment, cell.device), ""))
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


def _speedups(mine: list[Launch], theirs: list[Launch]) -> list[float]:
    """Of the launches that have both times, in block order."""
    times = {row.block: row.median_us for row in theirs if row.status == "ok" and row.median_us}
    return [times[row.block] / row.median_us for row in mine if row.median_us and row.block in times]


def solution(evidence: Evidence, cell: Cell, problem: str, blocked: str = "") -> Solution:
    """Return one pair in one environment. `blocked`: why the control permits no ratio."""
    record = evidence.validations.get(cell.id)
    mine, theirs = evidence.timed(cell, protocol.KERNEL), evidence.timed(cell, protocol.MODEL)
    timed = any(row.status == "ok" for row in theirs)
    refused = bool(theirs) and not timed  # `Model` itself does not run here
    wrong = "" if refused else _wrong(record, mine, evidence.launches_of(cell))
    unknown = "" if wrong else _unknown(record, mine, theirs)
    no_ratio = "" if wrong or unknown else blocked
    ratios = [] if wrong or no_ratio else _speedups(mine, theirs)
    low, high = median_interval(ratios, evidence.confidence)
    return Solution(
        problem=problem,
        kernel=cell.kernel,
        workload=cell.workload,
        correct=not wrong and not refused and record is not None and record.status == "ok",
        why=wrong or unknown,
        no_ratio=no_ratio,
        speedup=statistics.median(ratios) if ratios else None,
        low=low,
        high=high,
        launches=len(ratios),
        left_out=not wrong and (record is None or record.status in NOT_ITS_FAULT or not timed),
    )


def _wrong(record: ValidationRecord | None, mine: list[Launch], ends: list[LaunchRecord]) -> str:
    """What is wrong with the solution, in validation or in a launch; empty where nothing is."""
    if record is not None and record.status not in ("ok", *NOT_ITS_FAULT):
        return f"{words(record.status)}: {record.message or 'no message'}"
    for row in mine:
        if row.status not in ("ok", *NOT_ITS_FAULT):
            return f"{words(row.status)} in launch {row.block + 1}: {row.message or 'no message'}"
        if row.correct is False:
            return f"launch {row.block + 1}: {row.message or 'its output is not the one that was validated'}"
    escaped = next((end for end in ends if any(map(escapes, end.timings))), None)
    if escaped is not None:
        return f"launch {escaped.index + 1}: {OFF_STREAM}"
    for end in ends:  # a launch that ended before it gave any row
        if end.status not in ("ok", *NOT_ITS_FAULT):
            return f"{words(end.status)} in launch {end.index + 1}: {end.message or 'no message'}"
    return ""


def _unknown(record: ValidationRecord | None, mine: list[Launch], theirs: list[Launch]) -> str:
    if record is None or record.status in NOT_ITS_FAULT:
        return (record.message if record else "") or "not validated"
    if not any(row.status == "ok" for row in theirs):
        return next((row.message for row in theirs if row.message), "") or "the reference has no times"
    return "" if any(row.status == "ok" for row in mine) else "no times"
