"""What the controls of one run say, as data and in words, stored so that the page of another run can cite it. Pure.

A calibration is derived from that run's records, which are kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.schema.run_records import Thresholds
from reports.compare.correctness import pass_interval


class Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Share(Stored):
    """A count, with the exact (Clopper-Pearson) interval of its share at 95%; None where nothing was counted."""

    count: int = Field(ge=0)
    of: int = Field(ge=0)
    low: float | None
    high: float | None

    @property
    def share(self) -> float | None:
        return self.count / self.of if self.of else None


class AA(Stored):
    """Replicas of one environment, over all disjoint trials."""

    environments: list[str]
    blocks: int = Field(description="that both replicas have launches of")
    trials: int
    rows: Share = Field(description="rows called a change, of all rows judged")
    alarmed: Share = Field(description="trials with any such row, of all trials")
    alarms: list[str] = Field(description="the rows that were called, with their ratio")


class Detection(Stored):
    """One kernel against its slowed copy, on one workload in one environment."""

    environment: str
    kernel: str
    slowed: str
    workload: str
    device: str
    mode: str
    launches: int = Field(description="of each of the two, all together")
    ratio: float = Field(description="true slow-down: over all launches, as harness.stats.effects estimates it")
    low: float | None
    high: float | None
    found: Share = Field(description="disjoint trials that called it slower")
    resampled: Share | None = Field(description="the same of groups of blocks drawn at random, which overlap")


class Controls(Stored):
    launches: int = Field(description="blocks in a trial")
    aa: list[AA]
    detections: list[Detection]
    unchanged: Share = Field(description="references beside the slowed kernels, called a change though nothing was")
    missing: list[str] = Field(description="why a control of the run has no trial")

    @property
    def false_alarms(self) -> Share:
        """Over all rows in which nothing had changed: of replicas, and of references beside slowed kernels.

        Rows of one trial share its launches, and both kinds of trial share launches: the interval assumes that
        they are independent.
        """
        return total([*(each.rows for each in self.aa), self.unchanged])

    def found(self, mode: str) -> Share:
        """Over all environments and workloads; the interval assumes independent rows."""
        return total(each.found for each in self.detections if each.mode == mode)


class Calibration(Stored):
    """The controls of one run, to be cited by the page of another."""

    schema_version: Literal[1]
    run_id: str
    created_utc: str
    command: list[str]
    gpus: list[str]
    drivers: list[str]
    environments: list[str]
    thresholds: Thresholds
    controls: Controls


def count_share(count: int, of: int) -> Share:
    low, high = pass_interval(count, of, 0.95) if of else (None, None)
    return Share(count=count, of=of, low=low, high=high)


def total(shares: Iterable[Share]) -> Share:
    counts = [(each.count, each.of) for each in shares]
    return count_share(sum(count for count, _ in counts), sum(of for _, of in counts))


def share_text(share: Share) -> str:
    if share.low is None or share.high is None:
        return "none judged"
    return (
        f"{share.count} of {share.of} ({share.count / share.of:.2%}, 95% interval {share.low:.2%} to {share.high:.2%})"
    )


def calibration_lines(found: Controls) -> list[str]:
    """In words, for a terminal."""
    lines = [
        f"A/A, {' and '.join(each.environments)}: {each.trials} disjoint trials of {found.launches} launches each; "
        f"rows called a change: {share_text(each.rows)}; trials with any such row: {share_text(each.alarmed)}"
        for each in found.aa
    ]
    for each in found.detections:
        interval = f" [{each.low:.4f}, {each.high:.4f}]" if each.low is not None and each.high is not None else ""
        drawn = f"; {each.resampled.count} of {each.resampled.of} resampled groups" if each.resampled else ""
        lines.append(
            f"{each.slowed} on {each.workload}, {each.mode}, {each.environment}: true ratio {each.ratio:.4f}{interval} "
            f"from {each.launches} + {each.launches} launches; "
            f"found in {each.found.count} of {each.found.of} trials{drawn}"
        )
    for mode in dict.fromkeys(each.mode for each in found.detections):
        lines.append(f"slowed kernels found, {mode}, over all of these: {share_text(found.found(mode))}")
    if found.detections:
        lines.append(f"unchanged references beside them, called a change: {share_text(found.unchanged)}")
    if found.aa and found.detections:
        lines.append(f"false alarms, over all rows of both kinds: {share_text(found.false_alarms)}")
    return lines + [f"no trial: {reason}" for reason in found.missing]
