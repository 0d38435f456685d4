"""What a run is made of, as it was planned, and where: its own record, beside those of `harness.schema.records`."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.schema.records import Device, Record


class WorkloadInfo(Record):
    """One workload at one dtype, as planned."""

    id: str  # such as seed-fp16
    name: str
    dtype: str
    devices: list[Device]
    batch: int | None = None
    heads: int | None = None
    seq_len: int | None = None
    head_dim: int | None = None
    kv_heads: int | None = None  # of K and V, where they have fewer than Q
    kv_len: int | None = None  # keys, where they are more or fewer than the queries
    mask: str = ""  # a recipe of `harness.worker.inputs.mask`; empty: none
    dropout: float = 0.0  # probability; a kernel is given the draws
    causal: bool | None = None
    scale: float | None = None
    trials: dict[str, int] = field(default_factory=dict)  # recipe to number of trials
    problem: str | None = None  # path of a problem file, or an operator, instead of a shape
    operator: dict[str, Any] | None = None  # what an operator of PyTorch's is called with
    backward: bool = False  # whether gradients are outputs, and their time is in the time
    compiled: bool = False  # whether its model is called under torch.compile
    flops: float | None = None  # floating-point operations of one call
    bytes: float | None = None  # fewest that a call moves: an attention's inputs and outputs

    @property
    def has_options(self) -> bool:
        """Whether an attention has more to it than what `attention_forward` of csrc/attention.h computes."""
        return bool(self.kv_heads or self.kv_len or self.mask or self.dropout or self.backward)


class KernelInfo(Record):
    name: str
    pytorch: bool = False  # whether it is PyTorch itself: its workloads are its operators
    deterministic: bool = False  # whether other bits from run to run are a failure
    precision: list[str] | None = None  # coarser arithmetic that it declares; None: nothing
    devices: list[Device]
    sources: list[str]
    tunables: dict[str, str]
    references_cuda: list[str] | None = None  # those on a GPU, where they are others
    workloads: list[str]  # ids of the workloads it is measured on
    references: list[str]

    def references_on(self, device: str) -> list[str]:
        return self.references if device == "cpu" or self.references_cuda is None else self.references_cuda


class GpuFacts(Record):
    """The GPU that a run used, as NVIDIA's management library describes it. None: it does not say."""

    uuid: str
    name: str
    driver: str
    memory_bytes: int
    ecc: bool | None
    mig: bool | None
    power_limit_w: float | None
    max_sm_mhz: int | None


class RunSide(Record):
    """One of two runs that are compared: which environment of which run, and of what."""

    run_id: str
    created_utc: str
    environment: str
    commit: str
    machine: str
    quick: bool
    executor: str
    tolerances: dict[str, float]
    sources: dict[str, str]  # digest of each file of the kernels


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


class KernelBench(Record):
    """Folders in KernelBench's form that a run was made of; paths are below them."""

    problems: str  # folder, as it was given
    solutions: str
    sample: int = 0  # of KernelBench's own runs
    dtype: Literal["float16", "bfloat16", "float32"] = "float32"
    pairs: dict[str, str]  # kernel to its problem
    missing: list[str] = field(default_factory=list)  # problems without a solution
    unused: list[str] = field(default_factory=list)  # files among the solutions that are no problem's


class Selection(Record):
    """What the command asked for; None means: what the matrix says. `kernel-matrix explain` plans the same again."""

    mode: Literal["matrix", "eval"] = "matrix"
    torch: str | None = None  # of an eval: its PyTorch
    kernels: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    launches: int | None = None
    trials: int | None = None
    quick: bool = False


class Thresholds(BaseModel):
    """When a difference counts. After an edit nothing is measured again: the same run is reported by the new ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    min_effect_cpu: float = Field(
        default=0.05, gt=0, lt=1, description="smallest change of a time that counts, as a share, on the CPU"
    )
    min_effect_cuda: float = Field(default=0.01, gt=0, lt=1, description="the same on a GPU")
    memory: float = Field(
        default=0.05, gt=0, lt=1, description="the same of a call's peak memory; less than 1 MiB never counts"
    )
    false_discovery_rate: float = Field(
        default=0.05, gt=0, lt=1, description="among the rows that are called changed, over all rows of a run"
    )
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="of intervals")

    def min_effect(self, device: str) -> float:
        """The smallest change that counts of a time on this device, as a share."""
        return self.min_effect_cuda if device == "cuda" else self.min_effect_cpu


class RunRecord(Record):
    run_id: str
    created_utc: str
    plan_digest: str
    commit: str = ""  # of the project; + where files differ from it, empty: it is in no git
    command: list[str]
    selection: Selection = Selection()  # by that command; of older records, the default
    base_image: str | None = None  # container base that the command gave, for all
    mode: Literal["matrix", "eval"]  # eval: one environment, timed alone, not in a block
    quick: bool
    executor: str
    executor_reason: str
    sandboxed: bool | None = None  # whether every kernel ran in a sandbox; None: of before virtual environments had any
    engine: dict[str, str] = field(default_factory=dict)  # the container engine, where one ran the cells
    gpus: list[GpuFacts] = field(default_factory=list)
    # executor bundle: its manifest's digest, and when it was packed
    bundle: dict[str, str] = field(default_factory=dict)
    host: dict[str, str]
    derived: bool = False  # made by a search or an experiment, for its own ends
    baseline: str
    environments: list[str]
    kernels: list[KernelInfo]
    workloads: list[WorkloadInfo]
    cells: list[Cell]
    fallbacks: list[Fallback]
    thresholds: Thresholds
    limits: dict[str, float | None] = field(default_factory=dict)  # under which it was last finished, or begun
    finished_utc: str = ""  # when it was finished first; empty: it was not, or that was not recorded
    tolerances: dict[str, float]
    launches: int  # of each environment and kernel, at least
    most_launches: int | None = None  # while rows stayed undecided; None: there were `launches`, whatever they showed
    order_seed: int
    matrix_text: str  # matrix.yaml as it was
    sources_sha256: dict[str, str]
    kernelbench: KernelBench | None = None
    # where it is put together of two runs: what each environment stands for
    sides: dict[str, RunSide] = field(default_factory=dict)

    @property
    def other_machines(self) -> bool:
        """Whether it is put together of runs of different machines."""
        return len({side.machine for side in self.sides.values()}) > 1

    @property
    def unconfined(self) -> bool:
        """Whether a kernel ran with the rights of the user."""
        return self.executor == "venv" if self.sandboxed is None else not self.sandboxed

    @cached_property
    def pytorch(self) -> set[str]:
        """Names of the kernels that are PyTorch itself."""
        return {kernel.name for kernel in self.kernels if kernel.pytorch}

    @property
    def problems(self) -> set[str]:
        """Ids of the workloads that are problem files: what solves one is a kernel in Python."""
        return {workload.id for workload in self.workloads if workload.problem}
