"""Records of sweeps: what was asked, what was seen of each setting, and what follows.

    reports/sweeps/<id>/
        question.json                 what is searched, and how: written when it begins
        batches/<number>.json         settings that were tried together: written once all are judged and timed
        sweep.json                    all of it, with the answer: written when the budget is used, or nothing is left
        index.html, leaderboard.csv   by `kernel-matrix report`

A sweep that was killed goes on from the first two. What was measured stands in ordinary runs, which `run` names.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from harness.config.kernels import Setting
from harness.schema.experiment_records import Stage
from harness.schema.records import Device, Outcome, Record
from harness.schema.run_records import Fallback

Mode = Literal["cold", "hot"]
Verdict = Literal["confirmed", "not_confirmed", "none_faster", "none_admitted"]


class Compared(Record):
    """A setting's time beside the incumbent's in the same blocks: launch medians, in the order of blocks."""

    environment: str
    workload: str
    mode: Mode  # cold: calls as they come; hot, on a GPU alone: replays of a CUDA graph
    incumbent_us: list[float]
    this_us: list[float]
    ratio: float  # this setting's time over the incumbent's: below 1 is faster
    low: float | None  # interval of the ratio; None where too few launches support one
    high: float | None


class Trial(Outcome, kw_only=True):
    """One setting. `status` is ok where it was timed; else `stage` says at what it was rejected, and `message` why."""

    setting: Setting
    kernel: str  # its name in the runs
    stage: Stage | None = None  # at which it was rejected
    environment: str = ""  # in which it was rejected
    compared: list[Compared] = field(default_factory=list)
    score: float | None = None  # geometric mean of the ratios: what is minimised


class SweepQuestion(Record):
    id: str
    created_utc: str
    kernel: str
    device: Device
    workloads: list[str]
    environments: list[str]
    search: dict[str, list[int | str]]
    incumbent: Setting  # the setting in matrix.yaml
    settings: int  # how many `search` spans, the incumbent included
    executor: str
    fallbacks: list[Fallback] = field(default_factory=list)
    seed: int
    batch: int  # settings that are tried together
    level: float  # of every interval: 0.05 for 95%
    search_trials: int  # most trials of each recipe of inputs, while it is searched
    search_launches: int
    final_launches: int
    confirming_launches: int
    finalists: int


class BatchRecord(Record):
    number: int
    run: str  # the run that holds the records: reports/runs/<run>
    trials: list[Trial]
    untried: list[str]  # conditions of poison and repeat that could not be made here, with reasons
    started_utc: str
    duration_s: float  # what it took of the budget, in whichever session


class Confirmation(Record):
    """The winner of the search beside the incumbent, in fresh launches and on other inputs."""

    run: str
    trial: Trial
    confirmed: bool  # faster in every environment: each interval lies below 1
    why: str


class SweepRecord(Record):
    question: SweepQuestion
    command: list[str]
    budget_s: float
    spent_s: float  # by the search
    exhausted: bool  # whether every setting was tried
    batches: list[BatchRecord]
    finals: list[Trial]  # the best of the search again, with enough launches for an interval
    finals_run: str
    confirmation: Confirmation | None
    verdict: Verdict
    winner: Setting | None  # the best of the finals, confirmed or not
    answer: str
    next_command: str
    finished_utc: str
