"""Every request to a pinned environment and every result of one: a dataclass of each for every task.

These are the only types of what is measured. `codec` writes and reads them between the processes; a record
(`harness.schema`) inherits the result that it holds, and adds which job gave it. Standard library and Python 3.8 only.
"""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Mapping, NamedTuple, Optional, Tuple, Type

from .protocol import FailureKind, Fault, Status
from .text import cut

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda base: base


UNREADABLE = "its process left a result that cannot be read"
MESSAGE, EXCERPT = 2000, 20_000  # characters: the code under test wrote much of it, and may write without end


class Message:
    """What is written as JSON: between processes, or in a record."""


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class Request(Message):
    """What a task is given, or a part of that. Every subclass is a frozen dataclass."""

    def __init_subclass__(cls, **options: bool) -> None:
        dataclass(frozen=True, **options)(cls)


@dataclass_transform(field_specifiers=(field,))
class Reply(Message):
    """What a task gives, or a part of that. Every subclass is a dataclass; a record's takes `kw_only`."""

    def __init_subclass__(cls, **options: bool) -> None:
        dataclass(**options)(cls)


class Failed(Exception):
    """Ends what a task, or a part of it, was doing, with the status and the words that its `Outcome` gets. `loads`:
    whether the code under test can be called at all."""

    def __init__(
        self,
        status: Status,
        message: str,
        log_excerpt: str = "",
        fault: Fault = Fault.SUBJECT,
        failure: FailureKind = FailureKind.OTHER,
        *,
        loads: bool = True,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.log_excerpt, self.fault = status, message, log_excerpt, fault
        self.failure, self.loads = failure, loads


class Outcome(Reply):
    """How an attempt ended."""

    status: Status
    message: str = ""  # one sentence
    log_excerpt: str = ""  # the end of what the process printed
    fault: Fault = Fault.SUBJECT  # who failed where it did not end well
    failure: FailureKind = FailureKind.OTHER  # how the code under test failed
    # Of a process that ended without a result: how long it had run. The harness fills it in.
    ended_after_s: Optional[float] = None

    def __post_init__(self) -> None:
        self.message = cut(self.message, MESSAGE)
        self.log_excerpt = cut(self.log_excerpt, EXCERPT)

    def fail(self, error: Failed) -> None:
        self.status, self.message, self.log_excerpt = error.status, error.message, error.log_excerpt
        self.fault, self.failure = error.fault, error.failure

    def ended(self) -> "Outcome":
        """Return how it ended, without what else a subclass has."""
        return Outcome(**{each.name: getattr(self, each.name) for each in fields(Outcome)})

    def to_error(self) -> Failed:
        """The same as an exception. The code under test may have written it, and without end."""
        return Failed(self.status, self.message[:8000], self.log_excerpt[-8000:], self.fault, self.failure)


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


# Where a pattern is put before the call. `output`: the tensor that is written to; `around`: before and behind each
# input, in its allocation; `workspace`: memory that PyTorch's allocator will hand out next; `shared`: all shared memory
# of all SMs; `heap`, `stack`: of the host's process.
Site = Literal["", "output", "around", "workspace", "shared", "heap", "stack"]
Pattern = Literal["", "zero", "nan", "max", "random"]
# How the same elements lie in memory: `offset` starts 16 elements into its allocation, `misaligned` one element,
# `strided` has the layout [batch, row, head, column] under the shape [batch, head, row, column]; of one head, a gap
# after each row.
Layout = Literal["contiguous", "offset", "misaligned", "strided"]


class Condition(Request):
    """One way to call the kernel. Everything else is as in validation."""

    label: str = ""  # a few words for people, such as 'shared memory: NaN'
    recipe: str = "independent"  # of the inputs; see harness/worker/inputs.py
    layout: Layout = "contiguous"
    stream: Literal["current", "side"] = "current"
    site: Site = ""
    pattern: Pattern = ""
    # what ran just before: '' nothing, 'fresh' a new process, 'unrelated' another operator, or a reference's name
    before: str = ""
    process: int = 0  # which of several fresh processes that all do the same
    dtype: Literal["", "float64"] = ""  # to which inputs and weights are cast; '' as they are
    batch: int = 0  # of Q, K and V; 0: the workload's
    heads: int = 0  # of Q, K and V; 0: the workload's
    seq_len: int = 0  # rows of Q, K and V; 0: the workload's
    head_dim: int = 0  # columns of Q, K and V; 0: the workload's
    load: Literal["alone", "beside"] = "alone"  # beside: other work runs meanwhile

    @property
    def as_laid_out(self) -> bool:
        """Whether tensors lie, and calls are enqueued, as in validation."""
        return (self.layout, self.stream) == ("contiguous", "current")

    @property
    def sizes(self) -> Tuple[int, int, int, int]:
        return self.batch, self.heads, self.seq_len, self.head_dim


class NumberedJob(Request):
    """One condition on some trials, each of them `repeats` times."""

    number: int
    condition: Condition
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
    record_sha256: str  # digest of the installed RECORD file, which lists every file's own


class Gpu(Reply):
    name: str
    uuid: str
    compute_capability: str
    memory_bytes: int
    driver: str


class Confinement(Reply):
    user_id: int
    no_new_privileges: bool
    seccomp: int  # 0 none, 1 strict, 2 a filter
    capabilities: str  # effective set, as in /proc/self/status; all zeros: none
    networks: List[str]  # network interfaces; only lo: none
    root_writable: bool  # whether the root file system is mounted for writing
    memory_bytes: Optional[int]  # limit of its control group; None: none, or unknown
    processes: Optional[int]


class DeviceFunction(Reply):
    name: str
    architecture: str
    registers: int
    spill_bytes: int  # bytes of local memory that hold spilled registers and stack
    shared_bytes: int
    disassembly_sha256: str = ""  # of the disassembly with names normalised
    atomics: int = 0  # atomic instructions in it: RED, ATOM, ATOMG, ATOMS


class CandidateOutput(Reply):
    """What was seen of one trial. Its bytes are in a file, and in two where its second run had others."""

    shape: List[int]
    dtype: str
    written: List[int] = field(default_factory=list)  # places of inputs that changed: their bytes are in files, too
    unwritten: bool = False
    repeats: bool = True


class Worst(Reply):
    """Where the largest error sits, and both values there."""

    trial: int
    index: List[int]  # [batch, head, row, column]
    got: Optional[float]
    want: Optional[float]


class Agreement(Reply):
    """One target's outputs against another's, or against the truth, over all trials of one recipe."""

    against: str
    passed: Dict[str, int]  # trials that pass, by rule: rounding (against truth only), kernelbench, strict
    max_abs: Optional[float]  # largest absolute difference over finite elements
    mean_abs: Optional[float]
    nonfinite_trials: int  # trials with NaN or infinity on one side only
    worst: Optional[Worst]
    elements: Optional[int] = None  # of all trials; None in records of before it was kept
    # Against the truth only:
    max_units: Optional[float] = None  # largest error, of all norms, over what rounding costs here
    units_per_trial: List[Optional[float]] = field(default_factory=list)
    mean_abs_per_trial: List[Optional[float]] = field(default_factory=list)
    # by norm: largest, row (relative l2), factor (of a row), bias (mean, or factor of all)
    norms: Dict[str, float] = field(default_factory=dict)


class OutputResult(Reply):
    """One of several outputs of a target, over all trials; the target's own numbers are the worst of all."""

    name: str  # such as values, 0, grad of x; empty where a tensor is returned
    dtype: str
    shape: List[int]
    layout: str  # of its elements in memory: contiguous, channels_last, or the strides
    output_sha256: List[str]  # per trial
    repeats_differ: int = 0  # trials whose second run gave other bits
    truth: Optional[Agreement] = None  # against the truth


class TargetResult(Outcome):
    """One implementation (`kernel`, or a reference by name) on one recipe."""

    target: str = ""
    operators: List[str] = field(default_factory=list)  # operators proven to have run, by the profiler
    against: List[Agreement] = field(default_factory=list)  # truth first; for the kernel every reference too
    output_sha256: List[str] = field(default_factory=list)  # per trial
    repeats_differ: int = 0  # trials whose second run gave other bits; a trial passes a rule where both runs do
    repeats_max_abs: Optional[float] = None  # largest difference between a trial's two runs
    # the same over what correct rounding costs here; None where that is not known
    repeats_max_units: Optional[float] = None
    inputs_mutated: int = 0  # trials after which an input had changed
    unwritten_trials: int = 0  # trials that left poison in the output
    # trials in which plain arithmetic in the dtype overflows or underflows in an intermediate step
    leaves_range: int = 0
    # inputs that the problem's model writes to; what is written there is an output
    writes: List[str] = field(default_factory=list)
    # of a problem's model, and of an attention with gradients: each output; `against` has the worst
    outputs: List[OutputResult] = field(default_factory=list)
    # of a reference: coarser arithmetic than plain that it was judged as, by what it ran
    precision: List[str] = field(default_factory=list)


class KnownWrong(Reply):
    """A known wrong answer that the judge made from the truth of the first trial, and whether the rule saw it."""

    kind: str  # zeros, input, stale, scaled or row
    name: str
    seen: bool
    norm: str = ""  # the one that it is furthest beyond
    units: Optional[float] = None  # at least, where it was seen


class RecipeResult(Reply):
    recipe: str
    trials: int
    input_sha256: List[str]  # per trial, over all input tensors
    truth_sha256: List[str]  # per trial; empty where there is no truth
    rounding_cost: List[float]  # per trial: error of correct rounding, relative to the row's largest value; one unit
    targets: List[TargetResult]
    costs: List[Dict[str, float]] = field(default_factory=list)  # per trial: one unit of each norm
    power: List[KnownWrong] = field(default_factory=list)  # what the rule would have seen here, and what not
    draws_numbers: bool = False  # whether a problem's model draws random numbers in its call
    defined: bool = False  # whether the truth is the definition in the problem file, truth()
    # of float64 gradients, by name: whether each is the slope of the float64 outputs along a random direction, by
    # central finite differences
    gradients: Dict[str, bool] = field(default_factory=dict)
    # of a model that calls PyTorch's attention, by output: whether its float64 result is what the formula of
    # attention gives, written out, wherever that is defined
    formulas: Dict[str, bool] = field(default_factory=dict)


class CallMemory(Reply):
    """Of a target's calls in a process that called nothing before: bytes above what that had with its inputs."""

    # most at once, with the output. On the CPU resident memory, in any but the first call; on a GPU what PyTorch's
    # allocator gave
    peak_bytes: int
    kept_bytes: int  # what was left when the calls were over; a part of the peak
    reserved_bytes: Optional[int] = None  # on a GPU: most that PyTorch's allocator took from the device
    # on a GPU: what the device had less of when the calls were over, without what that allocator held
    outside_bytes: Optional[int] = None


class TargetTiming(Outcome):
    """One target of one workload in one launch. Samples are in measured order. A reference's backward pass by itself is
    a target of its own, such as math.backward."""

    workload: str = ""
    target: str = ""
    order: int = 0  # position in the launch's random order
    clock: str = ""  # perf_counter_ns or cuda_event
    calls_per_sample: int = 1
    warmup_calls: int = 0
    # time of one call: a sample's time over its calls. On a GPU cold: its L2 was written over
    samples_us: List[float] = field(default_factory=list)
    # on a GPU: when each sample ended, in seconds since the launch's first one
    sampled_s: List[float] = field(default_factory=list)
    # on the CPU: how many its process kept busy, with all of its threads, while sampled
    busy_processors: Optional[float] = None
    # on the CPU: how often its process's threads gave up a processor, or were taken off it, while sampled, in each
    # millisecond
    switches_per_ms: Optional[float] = None
    # on the CPU: threads and processes that were started meanwhile, for each call: the machine's, in a container its
    # own
    threads_started: Optional[float] = None
    # on a GPU: time of one call in replays of a CUDA graph, back to back, with no launch gaps
    hot_us: List[float] = field(default_factory=list)
    hot_sampled_s: List[float] = field(default_factory=list)  # as sampled_s
    hot_calls_per_sample: int = 1
    hot_message: str = ""  # why there are no replays, such as a call that cannot be captured
    # on a GPU, where a replay left outputs unwritten: whether what calls did ran at once while they were captured, on
    # another stream than the one they were given
    escaped: Optional[bool] = None
    enqueue_us: List[float] = field(default_factory=list)  # on a GPU: the host's time to enqueue one call
    # whether this launch's own outputs have the validated bits, or, where they have others, pass the deciding rule;
    # None where unchecked
    correct: Optional[bool] = None
    other_bits: int = 0  # outputs that were checked and had other bits than in validation
    # on the CPU: what it took at least to order one call and to be answered
    asking_us: Optional[float] = None
    checked: int = 0  # timed calls whose outputs were judged by the deciding rule
    # on a GPU, of a kernel: a cold call by the clock of another process, which orders it; samples that are clearly
    # less are not believed
    ordered_us: Optional[float] = None
    hot_ordered_us: Optional[float] = None  # the same, hot
    memory: Optional[CallMemory] = None  # None where it was not measured, as in records from before it was
    memory_message: str = ""  # why it was not
    # of a control: samples of the same reference in the references' process, in turns
    beside_us: List[float] = field(default_factory=list)
    hot_beside_us: List[float] = field(default_factory=list)  # the same, hot
    # What the harness saw of the GPU meanwhile, and left out:
    capped: List[int] = field(default_factory=list)  # which of samples_us were taken under the power cap
    hot_capped: List[int] = field(default_factory=list)  # the same of hot_us
    throttled_samples: int = 0  # samples left out: the GPU was throttled meanwhile
    sm_mhz: Optional[float] = None  # median SM clock while it was sampled


class Load(Reply):
    """The machine around a launch."""

    load_average: float
    busy_share_others: Optional[float]  # processor time others used, over all processors' time
    cpu_mhz: Optional[float]
    steal_share: Optional[float]


class JudgedRuns(Outcome):
    """The kernel's outputs under one condition, judged where the kernel was never loaded.

    One run is one call on one trial's inputs. `status` is ok where every run passes the deciding rule.
    """

    runs: int = 0
    passed: int = 0  # runs within the deciding rule, against the truth
    nonfinite: int = 0  # runs with NaN or infinity where the truth has none
    max_units: Optional[float] = None  # largest error, in units (`worker/rounding.py`)
    output_sha256: List[List[str]] = field(default_factory=list)  # per trial, of each of its repeats
    input_sha256: List[str] = field(default_factory=list)  # per trial, over all input tensors
    within: List[List[bool]] = field(default_factory=list)  # per trial, of each repeat: within the deciding rule
    # largest difference between a trial's first run and another with other bits, in the same units; None where there
    # was no such run, or it was not looked at
    apart_units: Optional[float] = None
    scales: Optional[bool] = None  # of smaller inputs: whether the truth is that on the full ones times a power of two


class WeighedJob(JudgedRuns):
    """The same, of the job with a number."""

    number: int = 0


class CompilerCall(Reply):
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


OperatorKind = Literal["operator", "device_function"]


class OperatorTime(Reply):
    """One operator, or one device function, over all profiled calls."""

    name: str
    kind: OperatorKind
    calls: float  # per call of the target
    # per call of the target, without what it calls in turn: of an operator the host's time, median over the calls; of
    # a device function the GPU's, mean
    self_us: float


class Line(Reply):
    """An executed line of a kernel's Python file."""

    number: int
    text: str


class GeneratedFile(Reply):
    """One file that a compiler left in its cache."""

    # inductor: a graph's output code, with the sources of its kernels; so: machine code of a C++ kernel; ttir, ttgir,
    # llir, ptx, amdgcn, cubin, hsaco: a stage of a Triton kernel
    kind: str
    name: str  # without hashes: the kernel's, or the graph's by its number
    size_bytes: int
    # of its text without folders, hashes and places in source files; of machine code of its disassembly, or of its
    # bytes, marked raw:, where nothing disassembles it
    sha256: str
    text: str = ""  # that text, where it is not long


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


class Observation(Reply):
    """What the environment says of itself. All that torch and numpy say is empty where they are missing."""

    python: str
    wheels: Dict[str, Wheel]
    machine: str
    cpu_model: str
    cpu_flags_sha256: str
    threads: int
    kernel_release: str
    libc: str
    compiler: str = ""  # first line of the C++ compiler's --version
    nvcc: str = ""  # last line of nvcc's --version; empty where there is none
    confinement: Optional[Confinement] = None
    torch: str = ""  # torch.__version__, local part included: 2.5.0+cu124
    torch_cuda: Optional[str] = None
    torch_git: str = ""
    cxx11_abi: bool = False
    numpy: str = ""
    cudnn: Optional[str] = None
    cpu_capability: str = ""  # instruction set that PyTorch chose, such as AVX512
    gpus: List[Gpu] = field(default_factory=list)
    settings: Dict[str, str] = field(default_factory=dict)  # PyTorch's switches that change numbers, such as allow_tf32
    # package, or the path of a library that no wheel brought, to the version that is loaded
    loaded: Dict[str, str] = field(default_factory=dict)
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
    """Why a file that was built elsewhere cannot be loaded in an environment."""

    kind: str  # symbol, cxx11_abi, python, library, machine, system, package, interface, file or other
    symbol: str = ""  # that the loader misses, as it names it
    library: str = ""  # that is missing
    instead: str = ""  # what the environment has in place of what is missing
    reason: str = ""
    remedy: str = ""


class BuildResult(Outcome):
    compiler: str = ""  # first line of the compiler's --version
    flags: List[str] = field(default_factory=list)
    build_ninja: str = ""
    build_s: Optional[float] = None  # seconds of compiling the kernel and linking
    artifact: str = ""  # the extension's file name
    artifact_sha256: str = ""
    artifact_bytes: Optional[int] = None
    objects: Dict[str, str] = field(default_factory=dict)  # object file to the hash of its normalised disassembly
    functions: List[DeviceFunction] = field(default_factory=list)
    refused: Optional[LoadFailure] = None  # of what was built elsewhere


class CandidateRequest(CaseRequest):
    kernel: KernelRequest
    out: str
    told: str = ""  # what a kernel in Python reads as PyTorch's version, and nothing else does; '' the true one


class CandidateResult(Outcome):
    """A stranger's words: the code under test ran in the process that wrote it."""

    loads: bool = True  # whether the kernel could be called
    choice: str = ""  # of several ways the one that the kernel says it takes here
    # of a Python kernel: libraries of its own in its process, and digests of their code
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


class JudgeResult(Outcome):
    recipes: List[RecipeResult] = field(default_factory=list)
    # coarser arithmetic than plain that the kernel was judged as: what it declares, else what PyTorch does
    # (tf32_convolution, tf32_matmul, tf32x3_matmul, tf32x3_attention, float16_sums)
    precision: List[str] = field(default_factory=list)
    # the same of references that have none of their own in their results
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


class TimeResult(Outcome):
    threads: Optional[int] = None
    load: Optional[Load] = None
    # on the CPU: how many its own process kept busy at its end, while nothing was called
    idle_processors: Optional[float] = None
    sampling_s: Optional[float] = None  # time in which calls were warmed up or sampled
    timings: List[TargetTiming] = field(default_factory=list)


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


class ProcessUse(Reply):
    """What a process says that it used: `harness.schema.records.TargetTiming` and `LaunchRecord` say what it is."""

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


class StoreResult(Outcome):
    files: Dict[str, str] = field(default_factory=dict)  # name to SHA-256


class CeilingsRequest(Request):
    threads: int


class CeilingsResult(Outcome):
    matmul_tflops: Dict[str, float] = field(default_factory=dict)  # by dtype: a large product of random matrices
    matmul_size: Optional[int] = None  # rows, columns and depth of that product
    copy_gbps: Optional[float] = None  # large device-to-device copy, bytes read plus written
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


class JobResult(Outcome):
    """One job's, in a file of its own: what its outputs are, and how many runs each trial had."""

    shape: List[int] = field(default_factory=list)
    dtype: str = ""
    ran: List[int] = field(default_factory=list)


class WeighedJobRequest(NumberedJob):
    done: JobResult  # a stranger's words


class WeighRequest(JudgingRequest):
    jobs: List[WeighedJobRequest]


class WeighResult(Outcome):
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


class CheckResult(Outcome):
    openmp: bool = False
    bulk_copies: bool = False
    builds: Dict[str, CompilerCall] = field(default_factory=dict)
    runs: List[Called] = field(default_factory=list)


class ProfileRequest(CaseRequest):
    kernel: Optional[KernelRequest]  # for the target `kernel`
    target: str
    device: str
    calls: int
    most_s: float


class ProfileResult(Outcome):
    """Where one target's time goes, and, of a kernel in Python, which way it takes."""

    threads: Optional[int] = None
    profiled_calls: int = 0
    operators: List[OperatorTime] = field(default_factory=list)
    lines: List[Line] = field(default_factory=list)  # of its file, those that ran until its first call had returned
    draws_as_model: Optional[bool] = None  # whether making it left PyTorch's generators where making Model leaves them


class CompiledRequest(CaseRequest):
    """A first call that may compile, with the compilers' caches in an empty folder."""

    kernel: Optional[KernelRequest]  # None: the workload's Model
    device: str
    caches: str


class CompiledResult(Outcome):
    generated: List[GeneratedFile] = field(default_factory=list)


class BatchRequest(Request):
    """Several requests of one task, as messages of their own."""

    task: str
    requests: List[Dict[str, Any]]
    timeout_s: float  # of each


class Answered(Reply):
    """One of them. `result`: that task's, as a message of its own; None: its process ended without one."""

    duration_s: float
    result: Optional[Dict[str, Any]] = None
    timed_out: bool = False


class BatchResult(Reply):
    answers: List[Answered]


class TaskType(NamedTuple):
    """The function that does it is `function`, or named for the task; its module is `module`, or named so too."""

    request: Type[Request]
    result: Type[Any]
    module: str = ""
    function: str = ""


TASKS: Mapping[str, TaskType] = {
    "observe": TaskType(ObserveRequest, Observation),
    "build": TaskType(BuildRequest, BuildResult),
    "take": TaskType(TakeRequest, BuildResult, "prebuilt"),
    "candidate": TaskType(CandidateRequest, CandidateResult),
    "judge": TaskType(JudgeRequest, JudgeResult),
    "batch": TaskType(BatchRequest, BatchResult),
    "time": TaskType(TimeRequest, TimeResult, "measuring", "launch"),
    "host": TaskType(HostRequest, Outcome, "serving"),
    "store": TaskType(StoreRequest, StoreResult),
    "ceilings": TaskType(CeilingsRequest, CeilingsResult, "device"),
    "probe": TaskType(EmptyRequest, Outcome, "device"),
    "library": TaskType(LibraryRequest, Outcome),
    "conditions": TaskType(ConditionsRequest, Outcome),
    "weigh": TaskType(WeighRequest, WeighResult),
    "link": TaskType(LinkRequest, Outcome, "library"),
    "check": TaskType(CallRequest, CheckResult),
    "profile": TaskType(ProfileRequest, ProfileResult),
    "compiled": TaskType(CompiledRequest, CompiledResult),
}
