"""Records of experiments, as typed models; `harness.schema.storage` writes and reads them.

experiments/<environment>/<kernel>-<device>/<workload>/<experiment>.json     ConditionsRecord, CheckersRecord
experiments/<environment>/<kernel>-<device>/<workload>/profile-<target>.json ProfileRecord
experiments/<environment>/<kernel>-cuda/<workload>/counters.json              CountersRecord
experiments/<environment>/<kernel>-<device>/<workload>/component.json         ComponentsRecord
experiments/swap/<kernel>-<device>/<workload>.json                           SwapRecord
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from harness.schema.records import CellRecord, Device, Outcome, Record, without

ConditionsExperiment = Literal[
    "repeat", "poison", "predecessor", "inputs", "history", "variables", "version", "wider", "lengths", "places"
]
# What a kernel must pass before it is timed, and its time: harness/experiments/admission.py.
Stage = Literal["build", "correctness", "repeat", "poison", "time"]
# Where a pattern is put before the call. `output`: the tensor that is written to; `around`: before and behind each
# input, in its allocation; `workspace`: memory that PyTorch's allocator will hand out next; `shared`: all shared memory
# of all SMs; `heap`, `stack`: of the host's process.
Site = Literal["", "output", "around", "workspace", "shared", "heap", "stack"]
Pattern = Literal["", "zero", "nan", "max", "random"]
# How the same elements lie in memory: `offset` starts 16 elements into its allocation, `misaligned` one element,
# `strided` has the layout [batch, row, head, column] under the shape [batch, head, row, column]; of one head, a gap
# after each row.
Layout = Literal["contiguous", "offset", "misaligned", "strided"]


class Condition(Record):
    """One way to call the kernel. Everything else is as in validation."""

    label: str = Field(description="a few words for people, such as 'shared memory: NaN'")
    recipe: str = Field(default="independent", description="of the inputs; see harness/worker/inputs.py")
    layout: Layout = "contiguous"
    stream: Literal["current", "side"] = "current"
    gpu: Literal["current", "second"] = Field(
        default="current",
        description="second: the tensors are on another GPU than the current one, after a call with tensors on that",
    )
    site: Site = ""
    pattern: Pattern = ""
    before: str = Field(
        default="",
        description="what ran just before: '' nothing, 'fresh' a new process, 'unrelated' another operator, or a "
        "reference's name",
    )
    process: int = Field(default=0, description="which of several fresh processes that all do the same")
    variables_of: str = Field(default="", description="the environment whose variables the process has; '' its own")
    told: str = Field(
        default="", description="what a kernel in Python reads as PyTorch's version, and nobody else; '' not told"
    )
    dtype: Literal["", "float64"] = Field(
        default="", description="to which inputs and weights are cast; '' as they are"
    )
    integers: Literal["", "as_asked", "int64"] = Field(
        default="",
        description="what a kernel in Python, made anew, gets where it asks PyTorch for integers of fewer bits than "
        "64: as it asks, or 64; '' not made anew",
    )
    batch: int = Field(default=0, description="of Q, K and V; 0: the workload's")
    heads: int = Field(default=0, description="of Q, K and V; 0: the workload's")
    seq_len: int = Field(default=0, description="rows of Q, K and V; 0: the workload's")
    head_dim: int = Field(default=0, description="columns of Q, K and V; 0: the workload's")
    load: Literal["alone", "beside"] = Field(default="alone", description="beside: other work runs meanwhile")

    @property
    def as_laid_out(self) -> bool:
        """Whether tensors lie, and calls are enqueued, as in validation."""
        return (self.layout, self.stream, self.gpu) == ("contiguous", "current", "current")


class ConditionResult(Outcome):
    """The kernel's outputs under one condition, judged where the kernel was never loaded.

    One run is one call on one trial's inputs. `status` is ok where every run passes the deciding rule.
    """

    condition: Condition
    runs: int = 0
    passed: int = Field(default=0, description="runs within the deciding rule, against the truth")
    nonfinite: int = Field(default=0, description="runs with NaN or infinity where the truth has none")
    max_units: float | None = Field(default=None, description="largest error, in units (`worker/rounding.py`)")
    output_sha256: list[list[str]] = Field(default=[], description="per trial, of each of its repeats")
    input_sha256: list[str] = Field(default=[], description="per trial, over all input tensors")
    within: list[list[bool]] = Field(default=[], description="per trial, of each repeat: within the deciding rule")
    apart_units: float | None = Field(
        default=None,
        description="largest difference between a trial's first run and another with other bits, in the same units; "
        "None where there was no such run, or it was not looked at",
    )
    scales: bool | None = Field(
        default=None, description="of smaller inputs: whether the truth is that on the full ones times a power of two"
    )

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, value: Any) -> Any:
        return without(value, "worst_at", "asked")


class ConditionsRecord(CellRecord):
    """One experiment on one cell. `status` says whether it could be made, not what it found."""

    experiment: ConditionsExperiment
    results: list[ConditionResult] = []


class SwapResult(Outcome):
    """Object code that was built in one environment, run inside another."""

    code_from: str = Field(description="environment that compiled it")
    run_in: str = Field(description="environment that called it")
    runtime: str = Field(default="", description="the runtime library that was loaded, by file name")
    runs: int = 0
    passed: int = 0
    max_units: float | None = None
    output_sha256: list[str] = Field(default=[], description="per trial, recipe after recipe")


class SwapRecord(Outcome):
    """All four combinations; `not_run` with the reason where the kernel's sources need PyTorch."""

    kernel: str
    workload: str
    device: Device
    key: str
    trials: dict[str, int] = Field(default={}, description="of each recipe: validation's first ones")
    results: list[SwapResult] = []
    started_utc: str
    duration_s: float


class TargetSeen(Outcome):
    """One target in one environment: its outputs by the deciding rule, and its launches' medians and peaks."""

    target: str
    runs: int = 0
    passed: int = 0
    max_units: float | None = None
    output_sha256: list[str] = Field(default=[], description="per trial, recipe after recipe")
    times_us: list[float] = Field(default=[], description="cold, of each launch; none where times were not asked for")
    peaks_bytes: list[int] = Field(default=[], description="its calls' peak memory, of each launch that measured it")


class ComponentResult(Outcome):
    """One environment's PyTorch, and all else in it, with one package of the other's. Without a package: as it is."""

    package: str = ""
    version: str = ""
    torch_of: str
    package_of: str
    environment: str = Field(default="", description="where that was run; '' where it could not be")
    targets: list[TargetSeen] = []


class ComponentsRecord(CellRecord):
    """Every package that differs from the baseline and can matter, exchanged both ways. `not_run` where none could."""

    baseline: str
    run: str = Field(default="", description="the run that measured it, below reports/runs")
    timed: bool = False
    results: list[ComponentResult] = []


class CheckerFinding(Record):
    kind: str = Field(description="race, out_of_bounds, uninitialised, misuse, undefined_behaviour, leak or other")
    text: str
    where: str = Field(default="", description="function, or file and line")
    count: int = 1


class CheckerResult(Outcome):
    """One tool on the kernel's C entry point. Its silence means something only where `control_found` is true.

    `status` is ok where it was silent and found its control, wrong where it found something, not_run with the reason
    where it does not apply, is missing, or did not find its control.
    """

    tool: str = Field(
        description="memcheck, racecheck, initcheck, synccheck, address, thread, undefined_behaviour or auto_var_init"
    )
    control: str = Field(default="", description="the fault that was planted for it in the same session")
    control_found: bool | None = None
    findings: list[CheckerFinding] = []
    command: str = ""


class CheckersRecord(CellRecord):
    results: list[CheckerResult] = []


class OperatorTime(Record):
    """One operator, or one device function, over all profiled calls."""

    name: str
    kind: Literal["operator", "device_function"]
    calls: float = Field(description="per call of the target")
    self_us: float = Field(
        description="per call of the target, without what it calls in turn: of an operator the host's time, median "
        "over the calls; of a device function the GPU's, mean"
    )


class Line(Record):
    """An executed line of a kernel's Python file."""

    number: int
    text: str


class ProfileRecord(CellRecord):
    """Where one target's time goes in one environment, and, of a kernel in Python, which way it takes."""

    target: str
    threads: int | None = None
    profiled_calls: int = 0
    operators: list[OperatorTime] = []
    lines: list[Line] = Field(default=[], description="of its file, those that ran until its first call had returned")
    draws_as_model: bool | None = Field(
        default=None, description="whether making it left PyTorch's generators where making Model leaves them"
    )


class FunctionCounters(Record):
    """One device function of one call, as Nsight Compute counted it. None: not counted."""

    name: str
    duration_us: float | None = Field(default=None, description="under the tool, which serialises and flushes caches")
    tensor_pct: float | None = Field(default=None, description="of its cycles, those with a tensor pipe active")
    dram_pct: float | None = Field(default=None, description="of what the device's memory can move")
    dram_bytes: float | None = None
    occupancy_pct: float | None = Field(default=None, description="warps active, of an SM's most")
    bank_conflicts: float | None = Field(default=None, description="of shared memory")
    shared_wavefronts: float | None = Field(default=None, description="passes that shared memory took, conflicts in it")
    registers: int | None = None
    stalls: dict[str, float] = Field(
        default={},
        description="warps of a scheduler that wait for that reason, on average, for each issued instruction",
    )


class CountersRecord(CellRecord):
    """Hardware counters of one call of a kernel's C entry point, apart from every timing, where asked for."""

    tool: str = Field(default="", description="ncu's version")
    functions: list[FunctionCounters] = Field(default=[], description="in the order of their launches")
    command: str = ""
