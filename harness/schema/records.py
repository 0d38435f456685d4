"""Records of cells: what is observed of a kernel on a workload, and what all records have in common.

`harness.schema.storage` writes and reads them; those of environments are in `harness.schema.environment_records`. What
a task measured is declared once, where it is measured: `harness.worker.wire`. A record inherits it, and adds which job
it is the result of.

Numbers carry their unit in their name. A number that could not be measured is None, and the status and
message beside it say why. JSON has no NaN: a non-finite error is None with `nonfinite_trials` counting it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from typing_extensions import dataclass_transform

from harness.worker import protocol, wire
from harness.worker.protocol import DifferenceKind
from harness.worker.wire import (
    Agreement,
    CallMemory,
    KnownWrong,
    Load,
    Outcome,
    OutputResult,
    RecipeResult,
    TargetResult,
    TargetTiming,
    Worst,
)

__all__ = [
    "DEVICES",
    "ENDED_BADLY",
    "Agreement",
    "CallMemory",
    "CellRecord",
    "Crossing",
    "CrossingRecord",
    "Device",
    "GpuWatch",
    "KnownWrong",
    "LaunchRecord",
    "Load",
    "Outcome",
    "OutputResult",
    "RecipeResult",
    "Record",
    "Status",
    "TargetResult",
    "TargetTiming",
    "TruthDifference",
    "ValidationRecord",
    "Worst",
]

Status = protocol.Status
Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = ("cpu", "cuda")
ENDED_BADLY = (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED)  # and may have taken its device with it


@dataclass_transform(field_specifiers=(field,), frozen_default=True, kw_only_default=True)
class Record(wire.Message):
    """What is recorded that no task measured. Every subclass is a frozen dataclass, made by keywords."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class CellRecord(Outcome, kw_only=True):
    """What was done once on one cell, or, of a profile, on one target of it."""

    environment: str
    kernel: str
    workload: str
    device: Device
    key: str
    started_utc: str
    duration_s: float


# -- validation -------------------------------------------------------------------------------------------


class ValidationRecord(CellRecord, wire.JudgeResult, kw_only=True):
    """`status` is ok when every trial of every recipe passes the deciding rule, wrong when one does not, undecidable
    when all pass and zeros, or an input itself, would too, or when there is no truth to judge by."""

    decides: str  # the rule that decides: rounding, kernelbench or strict
    deterministic: bool = False  # whether other bits from run to run are a failure
    limits: dict[str, float]  # each rule's tolerance here
    loads: bool = True  # whether the kernel could be called
    choice: str = ""  # of several ways the one that the kernel says it takes here
    # of a Python kernel: libraries of its own in its process, and digests of their code
    native: dict[str, str] = field(default_factory=dict)
    arrays: str | None = None  # file under arrays/, absent from published records


class Crossing(Record):
    """Two stored outputs of one trial: `left` and `right` are ``environment:target``, or ``truth`` where all
    environments share one."""

    left: str
    right: str
    recipe: str
    trials: int
    identical_trials: int
    max_abs: float | None
    mean_abs: float | None
    differing_share: float | None = None  # share of elements whose bits differ
    largest: float | None = None  # largest finite magnitude in either


class TruthDifference(Record):
    """Where the float64 results of two environments, each by its own PyTorch, differ by more than their rounding. It is
    the first trial in which one output does."""

    left: str  # an environment
    right: str
    recipe: str
    trial: int
    output: str  # its name; empty where the model returns one tensor
    kind: DifferenceKind
    elements: int  # how many differ
    of: int
    index: list[int]  # of the element that differs most; empty where shapes differ
    left_value: str  # of that element, for people; where shapes differ the shape
    right_value: str


class CrossingRecord(Record):
    key: str = ""  # digest of the validations whose outputs are compared
    kernel: str
    workload: str
    device: Device
    inputs_identical: bool
    pairs: list[Crossing]
    truths: list[TruthDifference] = field(default_factory=list)


# -- launches ---------------------------------------------------------------------------------------------


class GpuWatch(Record):
    """The GPU during a launch, as NVIDIA's management library reported it to a process that runs no code under test."""

    uuid: str
    readings: int
    sm_mhz: float | None  # median over the readings while calls were sampled
    memory_mhz: float | None
    power_w: float | None  # largest
    temperature_c: float | None  # largest
    throttled_share: float  # share of the readings while calls were sampled
    throttle_reasons: list[str] = field(default_factory=list)  # such as sw_power_cap, hw_thermal_slowdown
    other_processes: int | None  # most processes, not this launch's, that held the GPU


class LaunchRecord(wire.TimeResult, kw_only=True):
    environment: str
    kernel: str
    device: Device
    key: str
    index: int  # the block's number, from 0
    # those that it was to measure; empty, of older records: all of its kernel's
    workloads: list[str] = field(default_factory=list)
    position: int  # position in the whole run's random order
    started_utc: str
    duration_s: float
    overhead_s: float | None = None  # making and removing its container, moving files
    gpu: GpuWatch | None = None
