"""Records of cells: what is observed of a kernel on a workload, as typed models, and what all records have in common.

`harness.schema.storage` writes and reads them; those of environments are in `harness.schema.environment_records`.

Numbers carry their unit in their name. A number that could not be measured is None, and the status and
message beside it say why. JSON has no NaN: a non-finite error is None with `nonfinite_trials` counting it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from harness.worker import protocol
from harness.worker.protocol import DifferenceKind, Fault
from harness.worker.text import cut

Status = protocol.Status
Device = Literal["cpu", "cuda"]
DEVICES: tuple[Device, ...] = ("cpu", "cuda")
ENDED_BADLY = (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED)  # and may have taken its device with it


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def without(value: Any, *names: str) -> Any:
    """Return a record's values but for fields of earlier versions, whose records stay readable."""
    return {name: each for name, each in value.items() if name not in names} if isinstance(value, dict) else value


def _cut(most: int) -> AfterValidator:
    """Much of this text was written by the code under test, which may write without end."""
    return AfterValidator(lambda text: cut(text, most))


class Outcome(Record):
    """How an attempt ended; `message` is one sentence, `log_excerpt` the end of what the process printed, `fault` who
    failed where it did not end well."""

    status: Status
    message: Annotated[str, _cut(2000)] = ""
    log_excerpt: Annotated[str, _cut(20_000)] = ""
    fault: Fault = Fault.SUBJECT
    ended_after_s: float | None = Field(
        default=None,
        ge=0,
        description="of a process that ended without a result: how long it had run; None where that is not known",
    )
    ended_peak_bytes: int | None = Field(
        default=None,
        ge=0,
        description="of the same process: the most memory that it had resident, or the largest process that it had "
        "waited for; None where that is not known, as in a container",
    )


class CellRecord(Outcome):
    """What was done once on one cell, or, of a profile, on one target of it."""

    environment: str
    kernel: str
    workload: str
    device: Device
    key: str
    started_utc: str
    duration_s: float


# -- validation -------------------------------------------------------------------------------------------


class Worst(Record):
    """Where the largest error sits: trial, element's index in [batch, head, row, column], both values."""

    trial: int
    index: list[int]
    got: float | None
    want: float | None


class Agreement(Record):
    """One target's outputs against another's, or against the truth, over all trials of one recipe."""

    against: str
    passed: dict[str, int] = Field(
        description="trials that pass, by rule: rounding (against truth only), kernelbench, strict"
    )
    max_abs: float | None = Field(description="largest absolute difference over finite elements")
    mean_abs: float | None
    max_units: float | None = Field(
        default=None, description="largest error, of all norms, over what rounding costs here; against truth only"
    )
    units_per_trial: list[float | None] = []
    mean_abs_per_trial: list[float | None] = Field(default=[], description="against truth only, as units_per_trial")
    norms: dict[str, float] = Field(
        default={}, description="by norm: largest, row (relative l2), factor (of a row), bias (mean, or factor of all)"
    )
    within_strict_share: float = Field(description="share of elements within the strict tolerance")
    nonfinite_trials: int = Field(description="trials with NaN or infinity on one side only")
    histogram: list[int] = Field(
        description="elements by decade of absolute error: zero, then below 1e-8, 1e-7, ..., 1e0, and 1e0 or more"
    )
    worst: Worst | None


class OutputResult(Record):
    """One of the outputs of a problem's model, over all trials of a recipe."""

    name: str = Field(description="such as values, 0, grad of x; empty where a tensor is returned")
    dtype: str
    shape: list[int]
    layout: str = Field(description="of its elements in memory: contiguous, channels_last, or the strides")
    output_sha256: list[str] = Field(description="per trial")
    repeats_differ: int = Field(default=0, description="trials whose second run gave other bits")
    truth: Agreement | None = Field(default=None, description="against the truth")


class TargetResult(Outcome):
    """One implementation (`kernel`, or a reference by name) on one recipe."""

    target: str
    operators: list[str] = Field(default=[], description="operators proven to have run, by the profiler")
    against: list[Agreement] = Field(default=[], description="truth first; for the kernel every reference too")
    output_sha256: list[str] = Field(default=[], description="per trial")
    repeats_differ: int = Field(
        default=0, description="trials whose second run gave other bits; a trial passes a rule where both runs do"
    )
    repeats_max_abs: float | None = Field(default=None, description="largest difference between a trial's two runs")
    repeats_max_units: float | None = Field(
        default=None, description="the same over what correct rounding costs here; None where that is not known"
    )
    inputs_mutated: int = Field(default=0, description="trials after which an input had changed")
    unwritten_trials: int = Field(default=0, description="trials that left poison in the output")
    leaves_range: int = Field(
        default=0,
        description="trials in which plain arithmetic in the dtype overflows or underflows in an intermediate step",
    )
    writes: list[str] = Field(
        default=[], description="inputs that the problem's model writes to; what is written there is an output"
    )
    nearer_to: dict[str, int] = Field(default={}, description="kernel only: trials by nearest reference")
    outputs: list[OutputResult] = Field(
        default=[],
        description="of a problem's model, and of an attention with gradients: each output; `against` has the worst",
    )
    precision: list[str] = Field(
        default=[], description="of a reference: coarser arithmetic than plain that it was judged as, by what it ran"
    )


class KnownWrong(Record):
    """A known wrong answer that the judge made from the truth of the first trial, and whether the rule saw it."""

    kind: str = Field(
        description="zeros, input, previous, mean, stale, short, scaled, added, row, misread, gradient or softmax scale"
    )
    name: str
    size: float | None = Field(default=None, description="of what comes in sizes: a share")
    seen: bool
    norm: str = Field(default="", description="the one that it is furthest beyond")
    units: float | None = Field(default=None, description="at least, where it was seen")


class RecipeResult(Record):
    recipe: str
    trials: int
    input_sha256: list[str] = Field(description="per trial, over all input tensors")
    truth_sha256: list[str] = Field(description="per trial; empty where there is no truth")
    rounding_cost: list[float] = Field(
        description="per trial: error of correct rounding, relative to the row's largest value; one unit"
    )
    costs: list[dict[str, float]] = Field(default=[], description="per trial: one unit of each norm")
    power: list[KnownWrong] = Field(default=[], description="what the rule would have seen here, and what not")
    targets: list[TargetResult]
    draws_numbers: bool = Field(default=False, description="whether a problem's model draws random numbers in its call")
    defined: bool = Field(default=False, description="whether the truth is the definition in the problem file, truth()")
    gradients: dict[str, bool] = Field(
        default={},
        description="of float64 gradients, by name: whether each is the slope of the float64 outputs along a random "
        "direction, by central finite differences",
    )
    formulas: dict[str, bool] = Field(
        default={},
        description="of a model that calls PyTorch's attention, by output: whether its float64 result is what the "
        "formula of attention gives, written out, wherever that is defined",
    )


class ValidationRecord(CellRecord):
    """`status` is ok when every trial of every recipe passes the deciding rule, wrong when one does not, undecidable
    when all pass and zeros, or an input itself, would too, or when there is no truth to judge by."""

    decides: str = Field(description="the rule that decides: rounding, kernelbench or strict")
    deterministic: bool = Field(default=False, description="whether other bits from run to run are a failure")
    limits: dict[str, float] = Field(description="each rule's tolerance here")
    recipes: list[RecipeResult] = []
    precision: list[str] = Field(
        default=[],
        description="coarser arithmetic than plain that the kernel was judged as: what it declares, else what PyTorch "
        "does (tf32_convolution, tf32_matmul, tf32x3_matmul, tf32x3_attention, float16_sums)",
    )
    reference_precision: list[str] = Field(
        default=[], description="the same of references that have none of their own in their results"
    )
    choice: str = Field(default="", description="of several ways the one that the kernel says it takes here")
    native: dict[str, str] = Field(
        default={}, description="of a Python kernel: libraries of its own in its process, and digests of their code"
    )
    arrays: str | None = Field(default=None, description="file under arrays/, absent from published records")


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
    differing_share: float | None = Field(default=None, description="share of elements whose bits differ")
    largest: float | None = Field(default=None, description="largest finite magnitude in either")


class TruthDifference(Record):
    """Where the float64 results of two environments, each by its own PyTorch, differ by more than their rounding. It is
    the first trial in which one output does."""

    left: str = Field(description="an environment")
    right: str
    recipe: str
    trial: int
    output: str = Field(description="its name; empty where the model returns one tensor")
    kind: DifferenceKind = Field(strict=False)
    elements: int = Field(description="how many differ")
    of: int
    index: list[int] = Field(description="of the element that differs most; empty where shapes differ")
    left_value: str = Field(description="of that element, for people; where shapes differ the shape")
    right_value: str


class CrossingRecord(Record):
    key: str = Field(default="", description="digest of the validations whose outputs are compared")
    kernel: str
    workload: str
    device: Device
    inputs_identical: bool
    pairs: list[Crossing]
    truths: list[TruthDifference] = []


# -- launches ---------------------------------------------------------------------------------------------


class Memory(Record):
    """Of a target's calls in a process that called nothing before, above what that had when its inputs were there."""

    peak_bytes: int = Field(
        ge=0,
        description="most at once, with the output. On the CPU resident memory, in any but the first call; on a GPU "
        "what PyTorch's allocator gave",
    )
    kept_bytes: int = Field(ge=0, description="what was left when the calls were over; a part of the peak")
    reserved_bytes: int | None = Field(
        default=None, ge=0, description="on a GPU: most that PyTorch's allocator took from the device"
    )
    outside_bytes: int | None = Field(
        default=None,
        ge=0,
        description="on a GPU: what the device had less of when the calls were over, without what that allocator held",
    )


class Timing(Outcome):
    """One target of one workload in one launch. Samples are in measured order. A reference's backward pass by itself is
    a target of its own, such as math.backward."""

    workload: str
    target: str
    order: int = Field(description="position in the launch's random order")
    clock: str = Field(default="", description="perf_counter_ns or cuda_event")
    calls_per_sample: int = 1
    warmup_calls: int = 0
    samples_us: list[float] = Field(
        default=[],
        description="time of one call: a sample's time over its calls. On a GPU cold: its L2 was written over",
    )
    sampled_s: list[float] = Field(
        default=[], description="on a GPU: when each sample ended, in seconds since the launch's first one"
    )
    busy_processors: float | None = Field(
        default=None, description="on the CPU: how many its process kept busy, with all of its threads, while sampled"
    )
    switches_per_ms: float | None = Field(
        default=None,
        description="on the CPU: how often its process's threads gave up a processor, or were taken off it, while "
        "sampled, in each millisecond",
    )
    threads_started: float | None = Field(
        default=None,
        description="on the CPU: threads and processes that were started meanwhile, for each call: the machine's, in a "
        "container its own",
    )
    hot_us: list[float] = Field(
        default=[],
        description="on a GPU: time of one call in replays of a CUDA graph, back to back, with no launch gaps",
    )
    hot_sampled_s: list[float] = Field(default=[], description="as sampled_s")
    hot_calls_per_sample: int = 1
    hot_message: str = Field(default="", description="why there are no replays, such as a call that cannot be captured")
    escaped: bool | None = Field(
        default=None,
        description="on a GPU, where a replay left outputs unwritten: whether what calls did ran at once while they "
        "were captured, on another stream than the one they were given",
    )
    enqueue_us: list[float] = Field(default=[], description="on a GPU: the host's time to enqueue one call")
    capped: list[int] = Field(
        default=[], description="on a GPU: which of samples_us were taken under the power cap, at a lower clock"
    )
    hot_capped: list[int] = Field(default=[], description="the same of hot_us")
    throttled_samples: int = Field(default=0, description="samples left out: the GPU was throttled meanwhile")
    sm_mhz: float | None = Field(default=None, description="median SM clock while it was sampled")
    correct: bool | None = Field(
        default=None,
        description="whether this launch's own outputs have the validated bits, or, where they have others, pass the "
        "deciding rule; None where unchecked",
    )
    other_bits: int = Field(default=0, description="outputs that were checked and had other bits than in validation")
    asking_us: float | None = Field(
        default=None, description="on the CPU: what it took to order one call and to be answered, taken off each sample"
    )
    asking_error_us: float | None = Field(default=None, description="by how much it usually was more")
    checked: int = Field(default=0, description="timed calls whose outputs were judged by the deciding rule")
    ordered_us: float | None = Field(
        default=None,
        description="on a GPU, of a kernel: a cold call by the clock of another process, which orders it; samples that "
        "are clearly less are not believed",
    )
    hot_ordered_us: float | None = Field(default=None, description="the same, hot")
    memory: Memory | None = Field(
        default=None, description="None where it was not measured, as in records from before it was"
    )
    memory_message: str = Field(default="", description="why it was not")
    beside_us: list[float] = Field(
        default=[], description="of a control: samples of the same reference in the references' process, in turns"
    )
    hot_beside_us: list[float] = Field(default=[], description="the same, hot")


class Load(Record):
    """The machine around a launch."""

    load_average: float
    busy_share_others: float | None = Field(description="processor time others used, over all processors' time")
    cpu_mhz: float | None
    steal_share: float | None


class GpuWatch(Record):
    """The GPU during a launch, as NVIDIA's management library reported it to a process that runs no code under test."""

    uuid: str
    readings: int
    sm_mhz: float | None = Field(description="median over the readings while calls were sampled")
    memory_mhz: float | None
    power_w: float | None = Field(description="largest")
    temperature_c: float | None = Field(description="largest")
    throttled_share: float = Field(description="share of the readings while calls were sampled")
    throttle_reasons: list[str] = Field(default=[], description="such as sw_power_cap, hw_thermal_slowdown")
    other_processes: int | None = Field(description="most processes, not this launch's, that held the GPU")


class LaunchRecord(Outcome):
    environment: str
    kernel: str
    device: Device
    key: str
    index: int = Field(description="the block's number, from 0")
    workloads: list[str] = Field(
        default=[], description="those that it was to measure; empty, of older records: all of its kernel's"
    )
    position: int = Field(description="position in the whole run's random order")
    started_utc: str
    duration_s: float
    overhead_s: float | None = Field(default=None, description="making and removing its container, moving files")
    threads: int | None = None
    load: Load | None = None
    idle_processors: float | None = Field(
        default=None, description="on the CPU: how many its own process kept busy at its end, while nothing was called"
    )
    gpu: GpuWatch | None = None
    sampling_s: float | None = Field(default=None, description="time in which calls were warmed up or sampled")
    timings: list[Timing] = []
