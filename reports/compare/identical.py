"""The control of a run: one reference, timed in the kernel's process and in the references', by the same lines of code.

Whatever the harness does to the one and not to the other shows here, so a kernel's time over its reference's means no
more than this ratio permits. `blocked_places` says why a run gives no such ratios. Pure.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.schema.records import LaunchRecord, TargetTiming
from harness.worker import protocol
from reports.compare.latency import median_interval
from reports.load.evidence import Evidence

IDLE_LIMIT, BUSY_LIMIT = 0.03, 0.08  # of the ratio's distance from 1, certainly beyond which the control fails
BUSY_SHARE = 0.1  # of the machine, that other processes use, from which it counts as busy
UNSTEADY = 1.25  # the ratio's interval may reach this far, or the inverse of it


class ControlOutcome(enum.Enum):
    HELD = "held"
    FAILED = "failed"
    UNSTEADY = "too unsteady"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class IdenticalControl:
    """Hold the control of one environment on one device.

    `ratio` is the median over replicates, and `low` to `high` its interval, or with fewer than six replicates their
    range. All three are None where nothing was measured, and `message` says why.
    """

    environment: str
    device: str
    reference: str
    outcome: ControlOutcome
    limit: float
    replicates: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    message: str = ""

    @property
    def text(self) -> str:
        """The measurement, in one clause."""
        if self.ratio is None:
            return f"the control was not measured: {self.message or 'no replicate has one'}"
        count = f"{self.replicates} replicate" + ("" if self.replicates == 1 else "s")
        return (
            f"{self.reference} in the kernel's process took {self.ratio:.3g} times ({self.low:.3g} to {self.high:.3g}, "
            f"{count}) what it took in the references' process; the limit is {1 + self.limit:.3g}"
        )

    @property
    def blocked(self) -> str:
        """Why ratios of a kernel's time to a reference's are not given; empty where they are."""
        if self.outcome is ControlOutcome.HELD:
            return ""
        if self.outcome is ControlOutcome.UNSTEADY:
            return f"no ratio: the control is too unsteady on this machine: {self.text}"
        return f"no ratio: the control failed: {self.text}"


def controls_of(evidence: Evidence) -> list[IdenticalControl]:
    """Return the control of each environment and device whose replicates have one."""
    rows: dict[tuple[str, str], list[tuple[LaunchRecord, TargetTiming]]] = {}
    for (environment, _, device), launches in evidence.launch_records.items():
        for launch in launches:
            for timing in launch.timings:
                if timing.target.startswith(protocol.CONTROL):
                    rows.setdefault((environment, device), []).append((launch, timing))
    return [_control(*place, found, evidence.confidence) for place, found in rows.items()]


def blocked_places(evidence: Evidence) -> dict[tuple[str, str], str]:
    """Return why a run gives no ratio of a kernel to its reference, by environment and device; where it does, or has no
    control, there is no entry."""
    return {(each.environment, each.device): each.blocked for each in controls_of(evidence) if each.blocked}


def _control(
    environment: str, device: str, rows: Sequence[tuple[LaunchRecord, TargetTiming]], confidence: float
) -> IdenticalControl:
    pairs = [(timing.samples_us, timing.beside_us) for _, timing in rows]
    pairs += [(timing.hot_us, timing.hot_beside_us) for _, timing in rows]
    ratios = [statistics.median(own) / statistics.median(beside) for own, beside in pairs if own and beside]
    shares = [launch.load.busy_share_others or 0.0 for launch, _ in rows if launch.load is not None]
    limit = BUSY_LIMIT if shares and statistics.median(shares) > BUSY_SHARE else IDLE_LIMIT
    control = IdenticalControl(
        environment=environment,
        device=device,
        reference=rows[0][1].target[len(protocol.CONTROL) :],
        outcome=ControlOutcome.NOT_MEASURED,
        limit=limit,
        replicates=len(rows),
        message=next((timing.message for _, timing in rows if timing.message), ""),
    )
    if not ratios:
        return control
    low, high = median_interval(ratios, confidence)
    if low is None or high is None:
        low, high = min(ratios), max(ratios)
    outcome = ControlOutcome.HELD
    if low > 1 + limit or high < 1 / (1 + limit):
        outcome = ControlOutcome.FAILED
    elif high > UNSTEADY or low < 1 / UNSTEADY:
        outcome = ControlOutcome.UNSTEADY
    return replace(control, outcome=outcome, ratio=statistics.median(ratios), low=low, high=high)
