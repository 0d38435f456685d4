"""Records of experiments, as typed models; `harness.schema.storage` writes and reads them.

experiments/<environment>/<kernel>-<device>/<workload>/<experiment>.json     ConditionsRecord, CheckersRecord
experiments/<environment>/<kernel>-<device>/<workload>/profile-<target>.json ProfileRecord
experiments/<environment>/<kernel>-<device>/<workload>/component.json         ComponentsRecord
experiments/swap/<kernel>-<device>/<workload>.json                           SwapRecord
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from harness.schema.records import CellRecord, Device, Outcome, Record
from harness.worker import wire
from harness.worker.wire import Condition, Layout, Line, OperatorTime, Pattern, Site

__all__ = [
    "CheckerFinding",
    "CheckerResult",
    "CheckersRecord",
    "ComponentResult",
    "ComponentsRecord",
    "Condition",
    "ConditionResult",
    "ConditionsExperiment",
    "ConditionsRecord",
    "Layout",
    "Line",
    "OperatorTime",
    "Pattern",
    "ProfileRecord",
    "Site",
    "SwapRecord",
    "SwapResult",
    "TargetSeen",
]

ConditionsExperiment = Literal[
    "repeat", "poison", "predecessor", "inputs", "history", "variables", "version", "wider", "lengths"
]


class ConditionResult(wire.JudgedRuns, kw_only=True):
    """The kernel's outputs under one condition, judged where the kernel was never loaded.

    One run is one call on one trial's inputs. `status` is ok where every run passes the deciding rule.
    """

    condition: Condition


class ConditionsRecord(CellRecord, kw_only=True):
    """One experiment on one cell. `status` says whether it could be made, not what it found."""

    experiment: ConditionsExperiment
    results: list[ConditionResult] = field(default_factory=list)


class SwapResult(Outcome, kw_only=True):
    """Object code that was built in one environment, run inside another."""

    code_from: str  # environment that compiled it
    run_in: str  # environment that called it
    runtime: str = ""  # the runtime library that was loaded, by file name
    runs: int = 0
    passed: int = 0
    max_units: float | None = None
    output_sha256: list[str] = field(default_factory=list)  # per trial, recipe after recipe


class SwapRecord(Outcome, kw_only=True):
    """All four combinations; `not_run` with the reason where the kernel's sources need PyTorch."""

    kernel: str
    workload: str
    device: Device
    key: str
    trials: dict[str, int] = field(default_factory=dict)  # of each recipe: validation's first ones
    results: list[SwapResult] = field(default_factory=list)
    started_utc: str
    duration_s: float


class TargetSeen(Outcome, kw_only=True):
    """One target in one environment: its outputs by the deciding rule, and its launches' medians and peaks."""

    target: str
    runs: int = 0
    passed: int = 0
    max_units: float | None = None
    output_sha256: list[str] = field(default_factory=list)  # per trial, recipe after recipe
    times_us: list[float] = field(default_factory=list)  # cold, of each launch; none where times were not asked for
    peaks_bytes: list[int] = field(default_factory=list)  # its calls' peak memory, of each launch that measured it


class ComponentResult(Outcome, kw_only=True):
    """One environment's PyTorch, and all else in it, with one package of the other's. Without a package: as it is."""

    package: str = ""
    version: str = ""
    torch_of: str
    package_of: str
    environment: str = ""  # where that was run; '' where it could not be
    targets: list[TargetSeen] = field(default_factory=list)


class ComponentsRecord(CellRecord, kw_only=True):
    """Every package that differs from the baseline and can matter, exchanged both ways. `not_run` where none could."""

    baseline: str
    run: str = ""  # the run that measured it, below reports/runs
    timed: bool = False
    results: list[ComponentResult] = field(default_factory=list)


class CheckerFinding(Record):
    kind: str  # race, out_of_bounds, uninitialised, misuse, undefined_behaviour, leak or other
    text: str
    where: str = ""  # function, or file and line
    count: int = 1


class CheckerResult(Outcome, kw_only=True):
    """One tool on the kernel's C entry point. Its silence means something only where `control_found` is true.

    `status` is ok where it was silent and found its control, wrong where it found something, not_run with the reason
    where it does not apply, is missing, or did not find its control.
    """

    tool: str  # memcheck, racecheck, initcheck, synccheck, address, thread, undefined_behaviour or auto_var_init
    control: str = ""  # the fault that was planted for it in the same session
    control_found: bool | None = None
    findings: list[CheckerFinding] = field(default_factory=list)
    command: str = ""


class CheckersRecord(CellRecord, kw_only=True):
    results: list[CheckerResult] = field(default_factory=list)


class ProfileRecord(CellRecord, wire.ProfileResult, kw_only=True):
    """Where one target's time goes in one environment, and, of a kernel in Python, which way it takes."""

    target: str
