"""Every request to a pinned environment and every result of one: a dataclass of each for every task.

Both sides import it, and `codec` writes and reads it. Records (`harness.schema`) are made of results, and say what each
field is. Standard library and Python 3.8 only.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Type

from .protocol import Fault, Status

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda base: base


UNREADABLE = "its process left a result that cannot be read"


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class Request:
    """What a task is given, or a part of that. Every subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


@dataclass_transform(field_specifiers=(field,))
class Reply:
    """What a task gives, or a part of that. Every subclass is a dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(cls)


class Failed(Exception):
    """Ends what a task, or a part of it, was doing, with the status and the words that its `Result` gets."""

    def __init__(self, status: Status, message: str, log_excerpt: str = "", fault: Fault = Fault.SUBJECT) -> None:
        super().__init__(message)
        self.status, self.message, self.log_excerpt, self.fault = status, message, log_excerpt, fault


class Result(Reply):
    """What a task gives: how it ended, one sentence, the end of what was printed, and who failed where it did not end
    well."""

    status: Status
    message: str = ""
    log_excerpt: str = ""
    fault: Fault = Fault.SUBJECT

    def fail(self, error: Failed) -> None:
        self.status, self.message, self.log_excerpt = error.status, error.message, error.log_excerpt
        self.fault = error.fault

    def to_error(self) -> Failed:
        """The same as an exception. The code under test may have written it, and without end."""
        return Failed(self.status, self.message[:8000], self.log_excerpt[-8000:], self.fault)


# -- what requests are made of ----------------------------------------------------------------------------


class KernelRequest(Request):
    """The code under test: exactly one of its four forms."""

    name: str
    device: str
    artifact: Optional[str] = None  # an extension that was built
    model_new: Optional[str] = None  # a Python file
    library: Optional[str] = None  # a shared object with the C entry point, linked from a build's objects
    prebuilt: Optional[str] = None  # a shared object or a wheel that `take` took; beside a wheel it lies unpacked
    entry: str = ""  # of a wheel: package.module:function

    @property
    def may_compile(self) -> bool:
        """Whether it is Python code, which may build something when it runs."""
        return bool(self.model_new or self.entry)


class TensorRequest(Request):
    """`harness.config.operators` says what each is."""

    shape: List[int]
    values: str = "normal"
    below: int = 2
    strides: List[int] = field(default_factory=list)  # in elements; empty: contiguous
    offset: int = 0  # elements of the memory before its first
    requires_grad: bool = True


class ArgumentRequest(Request):
    """One tensor, or a list of them, given by its place or by its name."""

    tensors: List[TensorRequest]
    name: str = ""
    several: bool = False


class OperatorRequest(Request):
    """An operator of PyTorch's, such as torch.topk, and what it is called with."""

    name: str
    tensors: List[ArgumentRequest]
    arguments: Dict[str, Any] = field(default_factory=dict)
    direction: str = ""  # of `layouts.DIRECTIONS`: how what gradients are taken along lies in memory


class ProblemRequest(Request):
    """A problem file, or an operator in its place."""

    file: str
    store: str
    operator: Optional[OperatorRequest] = None
    backward: bool = False  # whether gradients are outputs, too
    compiled: bool = False  # whether Model is called under torch.compile


class WorkloadRequest(Request):
    """An attention has a shape, causal and scale; a problem file has none of them. `kv_heads` and `kv_len` are those of
    K and V, where they have others than Q."""

    id: str
    dtype: str
    recipes: Dict[str, int]  # to the number of trials, in this order
    batch: Optional[int] = None
    heads: Optional[int] = None
    seq_len: Optional[int] = None
    head_dim: Optional[int] = None
    kv_heads: Optional[int] = None
    kv_len: Optional[int] = None
    mask: str = ""  # a recipe of `inputs.mask`
    dropout: float = 0.0  # probability
    causal: Optional[bool] = None
    scale: Optional[float] = None
    backward: bool = False  # whether gradients are outputs, too
    problem: Optional[ProblemRequest] = None


class FlagsRequest(Request):
    """Compiler flags, by the program that takes them."""

    cxx: List[str] = field(default_factory=list)
    nvcc: List[str] = field(default_factory=list)
    ld: List[str] = field(default_factory=list)


class SamplingRequest(Request):
    """How long to measure; `harness.config.matrix.Timing` says what each is."""

    warmup_s: float
    warmup_calls: int
    target_s: float
    min_samples: int
    max_samples: int
    relative_error: float


class ConditionRequest(Request):
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
    told: str = ""
    dtype: str = ""
    integers: str = ""
    batch: int = 0
    heads: int = 0
    seq_len: int = 0
    head_dim: int = 0

    @property
    def sizes(self) -> Tuple[int, int, int, int]:
        return self.batch, self.heads, self.seq_len, self.head_dim

    load: str = "alone"


class NumberedJob(Request):
    """One condition on some trials, each of them `repeats` times."""

    number: int
    condition: ConditionRequest
    trials: List[int]
    repeats: int


class JobRequest(NumberedJob):
    patience_s: float  # but for the first few, no call is begun after that


class ObjectRequest(Request):
    path: str
    sha256: str  # that its build recorded


# -- what results are made of -----------------------------------------------------------------------------


class Wheel(Reply):
    version: str
    record_sha256: str


class Gpu(Reply):
    name: str
    uuid: str
    compute_capability: str
    memory_bytes: int
    driver: str


class Confinement(Reply):
    user_id: int
    no_new_privileges: bool
    seccomp: int
    capabilities: str
    networks: List[str]
    root_writable: bool
    memory_bytes: Optional[int]
    processes: Optional[int]


class DeviceFunction(Reply):
    name: str
    architecture: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    disassembly_sha256: str = ""
    atomics: int = 0


class CandidateOutput(Reply):
    """What was seen of one trial. Its bytes are in a file, and in two where its second run had others."""

    shape: List[int]
    dtype: str
    written: List[int] = field(default_factory=list)  # places of inputs that changed: their bytes are in files, too
    unwritten: bool = False
    repeats: bool = True


class Worst(Reply):
    trial: int
    index: List[int]
    got: Optional[float]
    want: Optional[float]


class Agreement(Reply):
    against: str
    passed: Dict[str, int]
    max_abs: Optional[float]
    mean_abs: Optional[float]
    max_units: Optional[float]
    units_per_trial: List[Optional[float]]
    mean_abs_per_trial: List[Optional[float]]
    norms: Dict[str, float]
    within_strict_share: float
    nonfinite_trials: int
    histogram: List[int]
    worst: Optional[Worst]


class OutputResult(Reply):
    """One of several outputs of a target, over all trials; the target's own numbers are the worst of all."""

    name: str
    dtype: str
    shape: List[int]
    layout: str
    output_sha256: List[str]
    repeats_differ: int = 0
    truth: Optional[Agreement] = None


class TargetResult(Result):
    target: str = ""
    operators: List[str] = field(default_factory=list)
    against: List[Agreement] = field(default_factory=list)
    output_sha256: List[str] = field(default_factory=list)
    repeats_differ: int = 0
    repeats_max_abs: Optional[float] = None
    repeats_max_units: Optional[float] = None
    inputs_mutated: int = 0
    unwritten_trials: int = 0
    leaves_range: int = 0
    writes: List[str] = field(default_factory=list)
    nearer_to: Dict[str, int] = field(default_factory=dict)
    outputs: List[OutputResult] = field(default_factory=list)
    precision: List[str] = field(default_factory=list)


class KnownWrong(Reply):
    kind: str
    name: str
    size: Optional[float]
    seen: bool
    norm: str = ""
    units: Optional[float] = None


class RecipeResult(Reply):
    recipe: str
    trials: int
    input_sha256: List[str]
    truth_sha256: List[str]
    rounding_cost: List[float]
    costs: List[Dict[str, float]]
    power: List[KnownWrong]
    targets: List[TargetResult]
    draws_numbers: bool = False
    defined: bool = False
    gradients: Dict[str, bool] = field(default_factory=dict)
    formulas: Dict[str, bool] = field(default_factory=dict)


class Memory(Reply):
    """Bytes above what its process had before the first call; `harness.schema.records.Memory` says what each is."""

    peak_bytes: int
    kept_bytes: int
    reserved_bytes: Optional[int] = None
    outside_bytes: Optional[int] = None


class Timing(Result):
    workload: str = ""
    target: str = ""
    order: int = 0
    clock: str = ""
    calls_per_sample: int = 1
    warmup_calls: int = 0
    samples_us: List[float] = field(default_factory=list)
    sampled_s: List[float] = field(default_factory=list)
    busy_processors: Optional[float] = None
    switches_per_ms: Optional[float] = None
    threads_started: Optional[float] = None
    hot_us: List[float] = field(default_factory=list)
    hot_sampled_s: List[float] = field(default_factory=list)
    hot_calls_per_sample: int = 1
    hot_message: str = ""
    escaped: Optional[bool] = None
    enqueue_us: List[float] = field(default_factory=list)
    correct: Optional[bool] = None
    other_bits: int = 0
    asking_us: Optional[float] = None
    asking_error_us: Optional[float] = None
    checked: int = 0
    ordered_us: Optional[float] = None
    hot_ordered_us: Optional[float] = None
    memory: Optional[Memory] = None
    memory_message: str = ""
    beside_us: List[float] = field(default_factory=list)
    hot_beside_us: List[float] = field(default_factory=list)


class Load(Reply):
    load_average: float
    busy_share_others: Optional[float]
    cpu_mhz: Optional[float]
    steal_share: Optional[float]


class WeighedJob(Result):
    """What the record of a condition says of one job."""

    number: int = 0
    runs: int = 0
    passed: int = 0
    nonfinite: int = 0
    max_units: Optional[float] = None
    output_sha256: List[List[str]] = field(default_factory=list)
    input_sha256: List[str] = field(default_factory=list)
    within: List[List[bool]] = field(default_factory=list)
    apart_units: Optional[float] = None
    scales: Optional[bool] = None


class Compiled(Reply):
    """A compiler's command, and its errors where it failed."""

    command: str
    errors: str


class Called(Reply):
    """One call of an executable under a tool; `returncode` is None where it did not end in time."""

    build: str
    tool: str
    fault: str
    command: str
    returncode: Optional[int]
    output: str
    sha256: str


class OperatorTime(Reply):
    name: str
    kind: str
    calls: float
    self_us: float


class Line(Reply):
    number: int
    text: str


class GeneratedFile(Reply):
    """`harness.schema.compiled_records` says what each is."""

    kind: str
    name: str
    size_bytes: int
    sha256: str
    text: str = ""
    registers: Optional[int] = None
    spills: Optional[int] = None
    shared_bytes: Optional[int] = None
    num_warps: Optional[int] = None
    num_stages: Optional[int] = None


class Picked(Reply):
    kernel: str
    key: str
    configuration: Dict[str, str]


class ProvenMachine(Reply):
    cpu_model: str
    fma: bool
    gpu: str
    driver: str


# -- one request and one result for each task -------------------------------------------------------------


class CaseRequest(Request):
    """What tasks on one workload have in common."""

    workload: WorkloadRequest
    seed: int
    threads: int


class CasesRequest(Request):
    """What tasks on several workloads have in common."""

    workloads: List[WorkloadRequest]
    seed: int
    threads: int
    device: str


class JudgingRequest(CaseRequest):
    """What tasks have in common that judge the outputs of one workload."""

    device: str  # where references run
    candidate_out: str
    truth_dir: str
    decides: str
    limits: Dict[str, float]  # each rule's tolerance
    precision: Optional[List[str]]


class EmptyRequest(Request):
    """Of tasks that need nothing: `probe`, `prove`."""


class ObserveRequest(Request):
    threads: int
    verify: bool = False  # whether every file is compared with its wheel's own list
    variables: List[str] = field(default_factory=list)  # whose values are wanted


class ObserveResult(Reply):
    python: str
    wheels: Dict[str, Wheel]
    machine: str
    cpu_model: str
    cpu_flags_sha256: str
    threads: int
    kernel_release: str
    libc: str
    compiler: str = ""
    nvcc: str = ""
    confinement: Optional[Confinement] = None
    torch: str = ""  # of what torch and numpy say, all is empty where they are missing
    torch_cuda: Optional[str] = None
    torch_git: str = ""
    cxx11_abi: bool = False
    numpy: str = ""
    cudnn: Optional[str] = None
    cpu_capability: str = ""
    gpus: List[Gpu] = field(default_factory=list)
    settings: Dict[str, str] = field(default_factory=dict)
    loaded: Dict[str, str] = field(default_factory=dict)  # `observe.loaded`
    damaged: List[str] = field(default_factory=list)  # files that are not what was installed


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


class TakeRequest(Request):
    """A shared object, or a wheel with its entry point, that was built elsewhere."""

    file: str
    out: str
    load: bool  # whether to load it
    entry: str = ""


class LoadFailure(Reply):
    """Why a file that was built elsewhere cannot be loaded. `kind`: symbol, cxx11_abi, python, library, machine,
    system, package, interface, file or other. `instead`: what the environment has in place of what is missing."""

    kind: str
    symbol: str = ""
    readable: str = ""
    library: str = ""
    instead: str = ""
    reason: str = ""
    remedy: str = ""


class BuildResult(Result):
    compiler: str = ""
    flags: List[str] = field(default_factory=list)
    build_ninja: str = ""
    build_s: Optional[float] = None
    artifact: str = ""
    artifact_sha256: str = ""
    artifact_bytes: Optional[int] = None
    objects: Dict[str, str] = field(default_factory=dict)
    functions: List[DeviceFunction] = field(default_factory=list)
    refused: Optional[LoadFailure] = None  # of what was built elsewhere
    provided: Dict[str, str] = field(default_factory=dict)  # symbol that it needs to the library that defines it


class CandidateRequest(CaseRequest):
    kernel: KernelRequest
    out: str


class CandidateResult(Result):
    """A stranger's words: the code under test ran in the process that wrote it."""

    choice: str = ""
    native: Dict[str, str] = field(default_factory=dict)
    recipes: Dict[str, List[CandidateOutput]] = field(default_factory=dict)


class JudgeRequest(JudgingRequest):
    references: List[str]
    candidate: Optional[CandidateResult]  # None: there is none
    subject: str = "kernel"  # whose outputs decide the cell's status
    deterministic: bool = False
    power: bool = False
    arrays: str = ""  # where to keep outputs
    array_trials: int = 0
    array_bytes: Optional[int] = None


class JudgeResult(Result):
    recipes: List[RecipeResult] = field(default_factory=list)
    precision: List[str] = field(default_factory=list)
    reference_precision: List[str] = field(default_factory=list)


class TimeRequest(CasesRequest):
    rows: List[List[str]]  # workload's id and target of each
    order_seed: int
    timing: SamplingRequest
    expected_sha256: Dict[str, List[str]]  # workload to digests of the validated outputs
    held_back: bool = False
    other_bits: bool = True  # whether right outputs may have other bits than the validated ones
    link: str = ""  # where the kernel's process is met
    processors: List[int] = field(default_factory=list)  # that the references may use; empty: any
    limits: Dict[str, Dict[str, float]] = field(default_factory=dict)  # by workload: each rule's tolerance
    decides: str = "rounding"
    precision: Optional[List[str]] = None
    memory: bool = True  # whether that of the calls is measured, too


class HostRequest(CasesRequest):
    """Of the process that the code under test lives in while another one measures it."""

    kernel: Optional[KernelRequest]
    link: str


class TimeResult(Result):
    threads: int = 0
    load: Optional[Load] = None
    idle_processors: Optional[float] = None
    sampling_s: float = 0.0
    timings: List[Timing] = field(default_factory=list)


class OpenOrder(Request):
    """`host` says what orders and their answers are for."""

    workload: str
    target: str


class Opened(Reply):
    in_slots: bool  # whether it writes its output to its slot
    draws: bool  # whether its calls draw random numbers
    writes: List[int] = field(default_factory=list)  # of a problem's model: places of inputs that it writes to


class MapOrder(Request):
    size_bytes: int
    slots: int
    slot_bytes: int
    offsets: List[int]  # of each input in a slot
    output_offset: int
    copies: bool  # whether each call ends with a copy of its output


class Described(Reply):
    dtype: str
    shape: List[int]
    contiguous: bool
    shared: bool  # whether several lie in the same memory, so that only the last can be there


class CopyOrder(Request):
    workload: str
    count: int
    dtype: str
    shape: List[int]
    contiguous: bool


class Told(Reply):
    """What a process says that it used: `harness.schema.records.Timing` and `LaunchRecord` say what it is."""

    busy_processors: float
    switches_per_ms: float
    threads_started: Optional[float]
    processor_s: float  # since it began
    threads: int
    idle_processors: Optional[float] = None
    lost: str = ""  # the fault that ended its use of a GPU


class ColdSamples(Reply):
    """Of one order, those calls for which the host was fast enough."""

    us: List[float]
    at_s: List[float]
    enqueue_us: List[float]
    leads: int  # pieces of other work that are wanted before a call


class HotOrder(Request):
    call_us: float
    timing: SamplingRequest


class HotSamples(Reply):
    us: List[float]
    at_s: List[float]
    calls: int  # in each
    message: str
    escaped: Optional[bool]


class StoreRequest(Request):
    problem: str
    out: str
    seed: int
    trials: int
    dtype: str
    most_bytes: int
    operator: Optional[OperatorRequest] = None


class StoreResult(Result):
    files: Dict[str, str] = field(default_factory=dict)  # name to SHA-256


class CallsRequest(Request):
    problems: List[str]  # paths
    operators: List[OperatorRequest] = field(default_factory=list)


class CallsResult(Result):
    operators: List[str] = field(default_factory=list)
    failures: List[str] = field(default_factory=list)


class CeilingsRequest(Request):
    threads: int


class CeilingsResult(Result):
    matmul_tflops: Dict[str, float] = field(default_factory=dict)
    matmul_size: Optional[int] = None
    copy_gbps: Optional[float] = None
    copy_bytes: Optional[int] = None


class LibraryRequest(Request):
    source: str
    out: str
    architecture: str  # empty: of the CPU


class ConditionsRequest(CaseRequest):
    kernel: KernelRequest
    out: str
    jobs: List[JobRequest]
    libraries: Dict[str, str]  # site to the probe that fills it


class JobResult(Result):
    """One job's, in a file of its own: what its outputs are, and how many runs each trial had."""

    shape: List[int] = field(default_factory=list)
    dtype: str = ""
    ran: List[int] = field(default_factory=list)


class WeighedJobRequest(NumberedJob):
    done: JobResult  # a stranger's words


class WeighRequest(JudgingRequest):
    jobs: List[WeighedJobRequest]


class WeighResult(Result):
    results: List[WeighedJob] = field(default_factory=list)


class LinkRequest(Request):
    objects: List[ObjectRequest]
    library: str
    cuda: bool


class CallRequest(CaseRequest):
    """Of `check` and `counters`: the C entry point, called from an executable on `batch` and `heads` of a workload."""

    device: str
    driver: str
    sources: List[str]
    objects: List[str]
    include_dirs: List[str]
    flags: FlagsRequest
    batch: int
    heads: int
    recipe: str
    trial: int
    run_s: float


class CheckResult(Result):
    openmp: bool = False
    bulk_copies: bool = False
    builds: Dict[str, Compiled] = field(default_factory=dict)
    runs: List[Called] = field(default_factory=list)


class CountersResult(Result):
    tool: str = ""
    builds: Dict[str, Compiled] = field(default_factory=dict)
    run: Optional[Called] = None


class ProfileRequest(CaseRequest):
    kernel: Optional[KernelRequest]  # for the target `kernel`
    target: str
    device: str
    calls: int
    most_s: float


class ProfileResult(Result):
    threads: int = 0
    profiled_calls: int = 0
    operators: List[OperatorTime] = field(default_factory=list)
    lines: List[Line] = field(default_factory=list)
    draws_as_model: Optional[bool] = None


class CompiledRequest(CaseRequest):
    """A first call that may compile, with the compilers' caches in an empty folder."""

    kernel: Optional[KernelRequest]  # None: the workload's Model
    device: str
    caches: str


class CompiledResult(Result):
    generated: List[GeneratedFile] = field(default_factory=list)
    picked: List[Picked] = field(default_factory=list)


class BatchRequest(Request):
    """Several requests of one task, as messages of their own."""

    task: str
    requests: List[Dict[str, Any]]
    timeout_s: float  # of each


class Answered(Reply):
    """One of them. `result`: that task's, as a message of its own; None: its process ended without one."""

    duration_s: float
    result: Optional[Dict[str, Any]] = None


class BatchResult(Reply):
    answers: List[Answered]


class ProveResult(Reply):
    """By result, such as cpu/flash/fp32. `failures` are wrong wherever they happen; `unsupported` is what PyTorch
    refuses here."""

    digests: Dict[str, str] = field(default_factory=dict)
    errors: Dict[str, Optional[float]] = field(default_factory=dict)
    unsupported: Dict[str, str] = field(default_factory=dict)
    failures: Dict[str, str] = field(default_factory=dict)
    libraries: List[str] = field(default_factory=list)
    unloadable: Dict[str, str] = field(default_factory=dict)
    machine: ProvenMachine = field(default_factory=lambda: ProvenMachine("", False, "", ""))


class Task(NamedTuple):
    """The function that does it is `function`, or named for the task; its module is `module`, or named so too."""

    request: Type[Request]
    result: Type[Any]
    module: str = ""
    function: str = ""


TASKS: Mapping[str, Task] = {
    "observe": Task(ObserveRequest, ObserveResult),
    "build": Task(BuildRequest, BuildResult),
    "take": Task(TakeRequest, BuildResult, "prebuilt"),
    "candidate": Task(CandidateRequest, CandidateResult),
    "judge": Task(JudgeRequest, JudgeResult),
    "batch": Task(BatchRequest, BatchResult),
    "time": Task(TimeRequest, TimeResult, "measuring", "launch"),
    "host": Task(HostRequest, Result),
    "store": Task(StoreRequest, StoreResult),
    "ceilings": Task(CeilingsRequest, CeilingsResult, "device"),
    "probe": Task(EmptyRequest, Result, "device"),
    "calls": Task(CallsRequest, CallsResult),
    "prove": Task(EmptyRequest, ProveResult, "prove_bundle", "prove_bundle"),
    "library": Task(LibraryRequest, Result),
    "conditions": Task(ConditionsRequest, Result),
    "weigh": Task(WeighRequest, WeighResult),
    "link": Task(LinkRequest, Result, "library"),
    "check": Task(CallRequest, CheckResult),
    "profile": Task(ProfileRequest, ProfileResult),
    "counters": Task(CallRequest, CountersResult, "check"),
    "compiled": Task(CompiledRequest, CompiledResult),
}
