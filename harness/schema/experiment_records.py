"""Records of experiments, as typed models; `harness.schema.storage` writes and reads them.

experiments/<environment>/<kernel>-<device>/<workload>/<experiment>.json     ConditionsRecord, CheckersRecord
experiments/<environment>/<kernel>-<device>/<workload>/profile-<target>.json ProfileRecord
experiments/<environment>/<kernel>-<device>/<workload>/<factor>.json          FactorRecord, also package-<name>.json
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Literal

from harness.schema.records import CellRecord, Outcome, Record
from harness.worker import wire
from harness.worker.wire import Condition, Layout, Line, OperatorTime, Pattern, Site

__all__ = [
    "CheckerFinding",
    "CheckerResult",
    "CheckersRecord",
    "Condition",
    "ConditionResult",
    "ConditionsExperiment",
    "ConditionsRecord",
    "ExperimentFactor",
    "FactorRecord",
    "FactorResult",
    "Layout",
    "Line",
    "OperatorTime",
    "Pattern",
    "ProfileRecord",
    "Site",
]

ConditionsExperiment = Literal["repeat", "poison", "predecessor", "inputs", "history", "wider", "lengths"]


class ConditionResult(wire.JudgedRuns, kw_only=True):
    """The kernel's outputs under one condition, judged where the kernel was never loaded.

    One run is one call on one trial's inputs. `status` is ok where every run passes the deciding rule.
    """

    condition: Condition


class ConditionsRecord(CellRecord, kw_only=True):
    """One experiment on one cell. `status` says whether it could be made, not what it found."""

    experiment: ConditionsExperiment
    results: list[ConditionResult] = field(default_factory=list)


class ExperimentFactor(str, Enum):
    """What an experiment varies between two environments, while all else is held."""

    CODE = "code"  # object code
    VARIABLES = "variables"  # environment variables, the number of threads among them
    VERSION = "version"  # what a kernel in Python reads as PyTorch's version
    PACKAGE = "package"  # one package beside PyTorch


class FactorResult(Outcome, kw_only=True):
    """What one target gave in one environment with the factor of one of the two."""

    home: str  # environment whose rest it ran with
    level: str  # environment whose object code, variables, version or package it ran with
    target: str = ""  # '' where nothing could run there
    environment: str = ""  # of a package: the environment that was made of the two
    runtime: str = ""  # of object code: the runtime library that was loaded, by file name
    runs: int = 0
    passed: int = 0  # by the deciding rule
    max_units: float | None = None
    output_sha256: list[str] = field(default_factory=list)  # per trial, recipe after recipe
    times_us: list[float] = field(default_factory=list)  # cold, of each launch; none where times were not asked for
    peaks_bytes: list[int] = field(default_factory=list)  # its calls' peak memory, of each launch that measured it


class FactorRecord(CellRecord, kw_only=True):
    """One factor of two environments: the level of either in either. `status` says whether it could be varied."""

    factor: ExperimentFactor
    baseline: str  # the environment that is compared with the cell's
    package: str = ""  # which one the factor is
    versions: dict[str, str] = field(default_factory=dict)  # of the package, by level; '' where it is not there
    run: str = ""  # the run that measured it, below reports/runs; '' this one
    timed: bool = False
    results: list[FactorResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the name of the record's file, which tells packages apart."""
        return f"{self.factor.value}-{self.package}" if self.package else self.factor.value


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
