"""Records: everything observed about a run, as JSON files in one folder.

    reports/runs/<run id>/
        run.json                                              what was asked, where, and in what order
        environments/<environment>.json                       requested and observed stack
        builds/<environment>/<kernel>-<device>.json
        validations/<environment>/<kernel>-<device>/<workload>.json
        launches/<environment>/<kernel>-<device>/<index>.json the statistical replicates
        crossings/<kernel>-<device>/<workload>.json           outputs of all environments against each other
        arrays/...                                            outputs of the first trials, beside the records
        logs/...                                              complete output of every process

A record file is ``{"schema_version", "kind", "digest", "body"}``; ``digest`` is the SHA-256 of the canonical
body, so that a truncated or edited file is refused (`RecordError`, with its path) instead of reported.
Records are written once, atomically, and parsed strictly: an unknown key is an error.

Numbers carry their unit in their name. A number that could not be measured is None, and the status and
message beside it say why. JSON has no NaN: a non-finite error is None with `nonfinite_trials` counting it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import RecordError
from harness.inside import protocol

Status = Literal["ok", "wrong", "unsupported", "build_failed", "crashed", "timed_out", "broken", "not_run"]
Device = Literal["cpu", "cuda"]


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Outcome(Record):
    """How an attempt ended; `message` is one sentence, `log_excerpt` the end of what the process printed."""

    status: Status
    message: str = ""
    log_excerpt: str = ""


# -- environments ---------------------------------------------------------------------------------------


class Wheel(Record):
    version: str
    record_sha256: str = Field(description="digest of the installed RECORD file, which lists every file's own")


class Gpu(Record):
    name: str
    uuid: str
    compute_capability: str
    memory_bytes: int
    driver: str


class Observation(Record):
    """What the environment says of itself, from inside."""

    python: str
    torch: str = Field(description="torch.__version__, local part included: 2.5.0+cu124")
    torch_cuda: str | None
    torch_git: str
    cxx11_abi: bool
    numpy: str
    cudnn: str | None
    wheels: dict[str, Wheel]
    machine: str
    cpu_model: str
    cpu_flags_sha256: str
    cpu_capability: str = Field(description="instruction set that PyTorch chose, such as AVX512")
    threads: int
    kernel_release: str
    libc: str
    gpus: list[Gpu]
    settings: dict[str, str] = Field(description="PyTorch's switches that change numbers, such as allow_tf32")


class EnvironmentRecord(Outcome):
    id: str
    torch: str = Field(description="the version that was asked for")
    cuda: str = Field(description="the CUDA version that was asked for")
    python: str
    replica: int
    index: str = Field(description="package index the wheels really came from")
    executor: str
    key: str = Field(description="digest of all that determines the environment")
    pins: dict[str, str] = Field(description="package to version, from the pin file")
    pins_sha256: str
    prepared_s: float | None
    reused: bool
    observed: Observation | None


# -- builds -----------------------------------------------------------------------------------------------


class DeviceFunction(Record):
    """One compiled GPU function for one architecture, from ``cuobjdump``."""

    name: str
    architecture: str
    registers: int
    spill_bytes: int = Field(description="bytes of local memory that hold spilled registers and stack")
    shared_bytes: int
    disassembly_sha256: str = Field(description="of the disassembly with names normalised")


class BuildRecord(Outcome):
    environment: str
    kernel: str
    device: Device
    key: str
    runnable: bool = Field(description="False where it was compiled only, for want of a device")
    compiler: str = Field(default="", description="first line of the compiler's --version")
    flags: list[str] = []
    build_ninja: str = ""
    build_s: float | None = None
    reused: bool = False
    artifact: str = Field(default="", description="the extension's file name")
    artifact_sha256: str = ""
    artifact_bytes: int | None = None
    objects: dict[str, str] = Field(default={}, description="object file to the hash of its normalised disassembly")
    functions: list[DeviceFunction] = []


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
        default=None, description="largest error over what correct rounding costs here; against truth only"
    )
    units_per_trial: list[float | None] = []
    within_strict_share: float = Field(description="share of elements within the strict tolerance")
    nonfinite_trials: int = Field(description="trials with NaN or infinity on one side only")
    histogram: list[int] = Field(
        description="elements by decade of absolute error: zero, then below 1e-8, 1e-7, ..., 1e0, and 1e0 or more"
    )
    worst: Worst | None


class TargetResult(Outcome):
    """One implementation (`kernel`, or a reference by name) on one recipe."""

    target: str
    operators: list[str] = Field(default=[], description="operators proven to have run, by the profiler")
    against: list[Agreement] = Field(default=[], description="truth first; for the kernel every reference too")
    output_sha256: list[str] = Field(default=[], description="per trial")
    repeats_differ: int = Field(default=0, description="trials whose second run gave other bits")
    inputs_mutated: int = Field(default=0, description="trials after which an input had changed")
    unwritten_trials: int = Field(default=0, description="trials that left poison in the output")
    nearer_to: dict[str, int] = Field(default={}, description="kernel only: trials by nearest reference")


class RecipeResult(Record):
    recipe: str
    trials: int
    input_sha256: list[str] = Field(description="per trial, over all input tensors")
    truth_sha256: list[str] = Field(description="per trial; empty where there is no truth")
    rounding_cost: list[float] = Field(
        description="per trial: error of correct rounding, relative to the row's largest value; one unit"
    )
    targets: list[TargetResult]


class ValidationRecord(Outcome):
    """`status` is ok when every trial of every recipe passes the deciding rule, wrong when one does not."""

    environment: str
    kernel: str
    workload: str
    device: Device
    key: str
    decides: str = Field(description="the rule that decides: rounding, kernelbench or strict")
    limits: dict[str, float] = Field(description="each rule's tolerance here")
    recipes: list[RecipeResult] = []
    arrays: str | None = Field(default=None, description="file under arrays/, absent from published records")
    started_utc: str
    duration_s: float


class Crossing(Record):
    """Two stored outputs of one trial: `left` and `right` are ``environment:target`` or ``truth``."""

    left: str
    right: str
    recipe: str
    trials: int
    identical_trials: int
    max_abs: float | None
    mean_abs: float | None


class CrossingRecord(Record):
    kernel: str
    workload: str
    device: Device
    inputs_identical: bool
    pairs: list[Crossing]


# -- launches ---------------------------------------------------------------------------------------------


class Timing(Outcome):
    """One target of one workload in one launch. Samples are in measured order."""

    workload: str
    target: str
    order: int = Field(description="position in the launch's random order")
    clock: str = Field(default="", description="perf_counter_ns or cuda_event")
    calls_per_sample: int = 1
    warmup_calls: int = 0
    samples_us: list[float] = Field(default=[], description="time of one call: a sample's time over its calls")
    correct: bool | None = Field(
        default=None, description="whether this launch's own output matched the validated one; None where unchecked"
    )


class Load(Record):
    """The machine around a launch."""

    load_average: float
    busy_share_others: float | None = Field(description="processor time others used, over all processors' time")
    cpu_mhz: float | None
    steal_share: float | None


class LaunchRecord(Outcome):
    environment: str
    kernel: str
    device: Device
    key: str
    index: int = Field(description="the block's number, from 0")
    position: int = Field(description="position in the whole run's random order")
    started_utc: str
    duration_s: float
    threads: int | None = None
    load: Load | None = None
    timings: list[Timing] = []


# -- the run ----------------------------------------------------------------------------------------------


class WorkloadInfo(Record):
    """One workload at one dtype, as planned."""

    id: str = Field(description="such as seed-fp16")
    name: str
    dtype: str
    devices: list[Device]
    batch: int | None = None
    heads: int | None = None
    seq_len: int | None = None
    head_dim: int | None = None
    causal: bool | None = None
    scale: float | None = None
    trials: dict[str, int] = Field(default={}, description="recipe to number of trials")
    problem: str | None = Field(default=None, description="path of a problem file, instead of a shape")
    flops: float | None = Field(default=None, description="floating-point operations of one call")


class KernelInfo(Record):
    name: str
    devices: list[Device]
    sources: list[str]
    tunables: dict[str, str]
    workloads: list[str] = Field(description="ids of the workloads it is measured on")
    references: list[str]


class Fallback(Record):
    """A thing that is not what the user asked for: it stands at the top of the report."""

    subject: str
    wanted: str
    got: str
    reason: str


class Cell(Record):
    """environment x kernel x workload x device, as planned."""

    environment: str
    kernel: str
    workload: str
    device: Device

    @property
    def id(self) -> str:
        return f"{self.environment}/{self.kernel}/{self.workload}/{self.device}"


class RunRecord(Record):
    run_id: str
    created_utc: str
    plan_digest: str
    command: list[str]
    mode: Literal["matrix", "eval"] = Field(description="eval: one environment, timed alone, not in a block")
    quick: bool
    executor: str
    executor_reason: str
    host: dict[str, str]
    baseline: str
    environments: list[str]
    kernels: list[KernelInfo]
    workloads: list[WorkloadInfo]
    cells: list[Cell]
    fallbacks: list[Fallback]
    thresholds: dict[str, float] = Field(
        description="min_effect_cpu, min_effect_cuda (shares), false_discovery_rate, confidence"
    )
    tolerances: dict[str, float]
    launches: int
    order_seed: int
    matrix_text: str = Field(description="matrix.yaml as it was")
    sources_sha256: dict[str, str]


KINDS: dict[str, type[Record]] = {
    "run": RunRecord,
    "environment": EnvironmentRecord,
    "build": BuildRecord,
    "validation": ValidationRecord,
    "launch": LaunchRecord,
    "crossing": CrossingRecord,
}
KIND_OF = {model: kind for kind, model in KINDS.items()}
AnyRecord = TypeVar("AnyRecord", bound=Record)


def render_record(record: Record) -> dict[str, Any]:
    """A record as the JSON value of its file, sealed with its digest."""
    body = record.model_dump(mode="json")
    return {
        "schema_version": protocol.SCHEMA_VERSION,
        "kind": KIND_OF[type(record)],
        "digest": protocol.digest(body),
        "body": body,
    }


def parse_record(value: Any, model: type[AnyRecord], path: str) -> AnyRecord:
    """A record from the JSON value of its file. RecordError, naming `path`, where it cannot be trusted."""
    if not isinstance(value, dict) or "schema_version" not in value:
        raise RecordError(path, "is not a record: it has no schema_version")
    version = value["schema_version"]
    if version != protocol.SCHEMA_VERSION:
        raise RecordError(path, f"has schema version {version!r}; this version reads {protocol.SCHEMA_VERSION}")
    if value.get("kind") != KIND_OF[model]:
        raise RecordError(path, f"is a {value.get('kind')!r} record; a {KIND_OF[model]} record belongs there")
    if set(value) != {"schema_version", "kind", "digest", "body"}:
        raise RecordError(path, f"has unexpected keys: {', '.join(sorted(map(str, value)))}")
    if protocol.digest(value["body"]) != value["digest"]:
        raise RecordError(path, "was edited or damaged: its digest does not match its contents")
    try:
        return model.model_validate(value["body"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordError(path, f"{where}: {first['msg']}") from None


def replace_strings(value: Any, replacements: Mapping[str, str]) -> Any:
    """A JSON value with every occurrence of each key of `replacements` replaced, in order, in every string."""
    if isinstance(value, str):
        for old, new in replacements.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, list):
        return [replace_strings(item, replacements) for item in value]
    if isinstance(value, dict):
        return {key: replace_strings(item, replacements) for key, item in value.items()}
    return value


def without_paths(record: AnyRecord, replacements: Mapping[str, str]) -> AnyRecord:
    """The record with folders of this machine replaced by their names: records and pages are sent on."""
    return type(record).model_validate(replace_strings(record.model_dump(mode="json"), replacements))


def save_record(path: Path, record: Record) -> None:
    protocol.write_json(str(path), render_record(record))


def load_record(path: Path, model: type[AnyRecord]) -> AnyRecord:
    """RecordError where the file is truncated, edited, of another version or kind."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise RecordError(str(path), "is truncated or not JSON") from None
    return parse_record(value, model, str(path))


class Run:
    """A run's folder. The paths of records are decided here and nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run_path(self) -> Path:
        return self.folder / "run.json"

    def environment_path(self, environment: str) -> Path:
        return self.folder / "environments" / f"{environment}.json"

    def build_path(self, environment: str, kernel: str, device: str) -> Path:
        return self.folder / "builds" / environment / f"{kernel}-{device}.json"

    def validation_path(self, cell: Cell) -> Path:
        return self.folder / "validations" / cell.environment / f"{cell.kernel}-{cell.device}" / f"{cell.workload}.json"

    def launch_path(self, environment: str, kernel: str, device: str, index: int) -> Path:
        return self.folder / "launches" / environment / f"{kernel}-{device}" / f"{index:03d}.json"

    def crossing_path(self, kernel: str, device: str, workload: str) -> Path:
        return self.folder / "crossings" / f"{kernel}-{device}" / f"{workload}.json"

    def load(self) -> RunRecord:
        return load_record(self.run_path(), RunRecord)

    def _all(self, folder: str, model: type[AnyRecord]) -> Iterator[AnyRecord]:
        for path in sorted((self.folder / folder).rglob("*.json")):
            yield load_record(path, model)

    def environments(self) -> list[EnvironmentRecord]:
        return list(self._all("environments", EnvironmentRecord))

    def builds(self) -> list[BuildRecord]:
        return list(self._all("builds", BuildRecord))

    def validations(self) -> list[ValidationRecord]:
        return list(self._all("validations", ValidationRecord))

    def launches(self) -> list[LaunchRecord]:
        return list(self._all("launches", LaunchRecord))

    def crossings(self) -> list[CrossingRecord]:
        return list(self._all("crossings", CrossingRecord))
