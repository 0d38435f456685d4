"""Every request to a pinned environment, one dataclass for each verb. Both sides import it, and `codec`
writes and reads it.

Standard library and Python 3.8 only.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Type


class Request:
    """What a verb is asked."""


# -- what requests are made of ----------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelRequest:
    """The code under test: exactly one of its three forms."""

    name: str
    device: str
    artifact: Optional[str] = None  # an extension that was built
    model_new: Optional[str] = None  # a Python file
    library: Optional[str] = None  # a shared object with the C entry point


@dataclass(frozen=True)
class ProblemRequest:
    file: str
    store: str


@dataclass(frozen=True)
class WorkloadRequest:
    """An attention has a shape, causal and scale; a problem file has none of them."""

    id: str
    dtype: str
    recipes: Dict[str, int]  # to the number of trials, in this order
    batch: Optional[int] = None
    heads: Optional[int] = None
    seq_len: Optional[int] = None
    head_dim: Optional[int] = None
    causal: Optional[bool] = None
    scale: Optional[float] = None
    problem: Optional[ProblemRequest] = None


@dataclass(frozen=True)
class FlagsRequest:
    """Compiler flags, by the program that takes them."""

    cxx: List[str] = field(default_factory=list)
    nvcc: List[str] = field(default_factory=list)
    ld: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class SamplingRequest:
    """How long to measure; `harness.config.matrix.Timing` says what each is."""

    warmup_s: float
    warmup_calls: int
    target_s: float
    min_samples: int
    max_samples: int
    relative_error: float


@dataclass(frozen=True)
class ConditionRequest:
    """`harness.schema.experiment_records.Condition` says what each is."""

    label: str = ""
    recipe: str = "independent"
    layout: str = "contiguous"
    stream: str = "current"
    gpu: str = "current"
    site: str = ""
    pattern: str = ""
    before: str = ""
    process: int = 0
    variables_of: str = ""
    dtype: str = ""
    integers: str = ""
    seq_len: int = 0
    load: str = "alone"


@dataclass(frozen=True)
class JobRequest:
    """One condition on some trials, each of them `repeats` times while `patience_s` lasts."""

    number: int
    condition: ConditionRequest
    trials: List[int]
    repeats: int
    patience_s: float


@dataclass(frozen=True)
class WeighedJobRequest:
    number: int
    condition: ConditionRequest
    trials: List[int]
    repeats: int
    done: Any  # what the job's process left: a stranger's words


@dataclass(frozen=True)
class ObjectRequest:
    path: str
    sha256: str  # that its build recorded


# -- one for each verb ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EmptyRequest(Request):
    """Of verbs that need nothing: `probe`, `prove`."""


@dataclass(frozen=True)
class ObserveRequest(Request):
    threads: int
    verify: bool = False  # whether every file is compared with its wheel's own list
    variables: List[str] = field(default_factory=list)  # names, to tell their values


@dataclass(frozen=True)
class BuildRequest(Request):
    name: str
    build_dir: str
    sources: List[str]
    include_dirs: List[str]
    flags: FlagsRequest
    load: bool  # whether to load what was built
    defines: Dict[str, str] = field(default_factory=dict)
    architectures: List[str] = field(default_factory=list)
    objects: List[str] = field(default_factory=list)  # compiled before, to be linked
    libraries: List[str] = field(default_factory=list)
    cuda_headers: bool = False
    artifact: str = ""  # the file to describe, where that is not the extension: an object that others will link


@dataclass(frozen=True)
class CandidateRequest(Request):
    kernel: KernelRequest
    workload: WorkloadRequest
    seed: int
    threads: int
    out: str


@dataclass(frozen=True)
class JudgeRequest(Request):
    workload: WorkloadRequest
    seed: int
    threads: int
    device: str  # where references run
    references: List[str]
    candidate: Any  # what its process left, a stranger's words; None: there is none
    candidate_out: str
    truth_dir: str
    decides: str
    limits: Dict[str, float]  # each rule's tolerance
    precision: Optional[List[str]] = None
    deterministic: bool = False
    power: bool = False
    arrays: str = ""  # where to keep outputs
    array_trials: int = 0
    array_bytes: Optional[int] = None


@dataclass(frozen=True)
class TimeRequest(Request):
    kernel: Optional[KernelRequest]
    workloads: List[WorkloadRequest]
    kernel_workloads: List[str]  # ids of those that the kernel is called on
    targets: List[str]
    seed: int
    device: str
    threads: int
    order_seed: int
    timing: SamplingRequest
    expected_sha256: Dict[str, List[str]]  # workload to digests of the validated outputs
    held_back: bool = False
    out: str = ""  # where outputs with other bits go; empty: other bits are a fault
    most_bytes: int = 0


@dataclass(frozen=True)
class AppraiseRequest(Request):
    workloads: List[WorkloadRequest]
    kept: List[Any]  # what a launch says of the outputs that it left: a stranger's words
    candidate_out: str
    truth_dir: Dict[str, str]  # by workload, as limits are
    limits: Dict[str, Dict[str, float]]
    decides: str
    device: str
    seed: int
    threads: int
    precision: Optional[List[str]] = None


@dataclass(frozen=True)
class StoreRequest(Request):
    problem: str
    out: str
    seed: int
    trials: int
    dtype: str
    most_bytes: int


@dataclass(frozen=True)
class CeilingsRequest(Request):
    threads: int


@dataclass(frozen=True)
class LibraryRequest(Request):
    source: str
    out: str
    architecture: str  # empty: of the CPU


@dataclass(frozen=True)
class ConditionsRequest(Request):
    workload: WorkloadRequest
    seed: int
    threads: int
    kernel: KernelRequest
    out: str
    jobs: List[JobRequest]
    libraries: Dict[str, str]  # site to the probe that fills it


@dataclass(frozen=True)
class WeighRequest(Request):
    workload: WorkloadRequest
    seed: int
    threads: int
    candidate_out: str
    truth_dir: str
    decides: str
    limits: Dict[str, float]
    device: str
    jobs: List[WeighedJobRequest]
    precision: Optional[List[str]] = None


@dataclass(frozen=True)
class LinkRequest(Request):
    objects: List[ObjectRequest]
    library: str
    cuda: bool


@dataclass(frozen=True)
class CallRequest(Request):
    """Of `check` and `counters`: the C entry point, called from an executable on `batch` and `heads` of a workload."""

    device: str
    driver: str
    sources: List[str]
    objects: List[str]
    include_dirs: List[str]
    flags: FlagsRequest
    workload: WorkloadRequest
    batch: int
    heads: int
    recipe: str
    trial: int
    seed: int
    threads: int
    run_s: float


@dataclass(frozen=True)
class ProfileRequest(Request):
    kernel: Optional[KernelRequest]  # for the target `kernel`
    workload: WorkloadRequest
    target: str
    seed: int
    device: str
    threads: int
    calls: int
    most_s: float


REQUESTS: Mapping[str, Type[Request]] = {
    "observe": ObserveRequest,
    "build": BuildRequest,
    "candidate": CandidateRequest,
    "judge": JudgeRequest,
    "time": TimeRequest,
    "appraise": AppraiseRequest,
    "store": StoreRequest,
    "ceilings": CeilingsRequest,
    "probe": EmptyRequest,
    "prove": EmptyRequest,
    "library": LibraryRequest,
    "conditions": ConditionsRequest,
    "weigh": WeighRequest,
    "link": LinkRequest,
    "check": CallRequest,
    "profile": ProfileRequest,
    "counters": CallRequest,
}
