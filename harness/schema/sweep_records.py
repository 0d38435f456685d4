"""The record of a sweep, reports/sweeps/<id>/sweep.json: written after each batch of settings, and with the answer.

A sweep that was killed goes on from it. What was measured stands in ordinary runs, which `run` names.
"""

from __future__ import annotations

import math
from dataclasses import field
from statistics import fmean

from harness.schema.records import Record
from harness.schema.run_records import Fallback

Setting = dict[str, int | str]  # values of some tunables of a kernel, by name


def describe(setting: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


class TimeRatio(Record):
    """A setting's time over the incumbent's in the same rounds: below 1 is faster."""

    environment: str
    workload: str
    mode: str  # cold: single calls; hot, on a GPU alone: replays of a CUDA graph
    incumbent_us: float
    this_us: float
    ratio: float
    low: float | None  # interval of the ratio; None where one round alone was timed
    high: float | None
    replicates: int


class SettingTrial(Record):
    """One setting: rejected, or timed beside the incumbent."""

    setting: Setting
    confirms: bool  # whether it was one of the best, and measured again
    run: str
    rejected: str = ""  # why it has no time: stage, environment and message
    ratios: list[TimeRatio] = field(default_factory=list)

    @property
    def score(self) -> float:
        """The geometric mean of the ratios, which the search minimises; infinite where it was rejected."""
        return math.exp(fmean(math.log(each.ratio) for each in self.ratios)) if self.ratios else math.inf

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval lies below 1 in every place."""
        return bool(self.ratios) and all(each.high is not None and each.high < 1 for each in self.ratios)


class SweepRecord(Record):
    id: str
    command: list[str]
    kernel: str
    workloads: list[str]
    environments: list[str]
    fallbacks: list[Fallback]
    incumbent: Setting  # the setting in matrix.yaml
    settings: int  # how many `search` spans, the incumbent included
    budget_s: float
    spent_s: float = 0.0
    trials: list[SettingTrial] = field(default_factory=list)
    finished_utc: str = ""

    @property
    def winner(self) -> SettingTrial | None:
        """The fastest of the settings that are confirmed."""
        confirmed = [trial for trial in self.trials if trial.confirms and trial.is_faster]
        return min(confirmed, key=lambda trial: trial.score, default=None)
