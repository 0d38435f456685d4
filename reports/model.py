"""The words of a report, as data: what compare, statistics and attribution produce and rendering consumes.

A ratio is this environment's time over the baseline's: above 1 is slower. A share is between 0 and 1.
A value that could not be measured is None; the `why` or `message` beside it says the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from harness.schema.records import Device
from harness.stats.effects import Estimate
from harness.stats.peaks import FLOOR_BYTES, counted
from harness.worker.protocol import DifferenceKind, FailureKind, Fault

DASH = "\N{EN DASH}"


class Verdict(str, Enum):
    """What became of a row's outputs, time or memory, worst first: the order of counts, and of rows that are equally
    significant.

    A member is its word in records, its sign on the page, the element by which JUnit tells it (passed where there is
    none), and whether it moved. Who gives it, and its sentence in templates/verdicts.txt.j2, stand elsewhere.
    """

    BROKEN = "broken", "!!", "error", True
    REGRESSED = "regressed", "✕", "failure", True
    NO_LONGER_SUPPORTED = "no_longer_supported", "⊘", "failure", True
    FAILING = "failing", "✕", "failure", False
    MEANING_CHANGED = "meaning_changed", "≠", "", True  # float64 results differ beyond rounding; which is right is open
    OTHER_DRAWS = "other_draws", "≠", "", True  # a model draws other numbers from the same seed
    LESS_EXACT = "less_exact", "≉", "", True  # right in both, with errors that moved far enough (harness.stats.outputs)
    OTHER_TYPE = "other_type", "≠", "", True  # right in both, with an output of another dtype or shape
    ABOUT = "moved_about_the_threshold", "≈", "", False  # a time that moved significantly, by about the minimum effect
    UNDECIDED = "undecided", "?", "skipped", False
    IMPROVED = "improved", "▼", "", True
    FIXED = "fixed", "✓", "", True
    NEWLY_SUPPORTED = "newly_supported", "+", "", True
    MORE_EXACT = "more_exact", "≈", "", True
    # In both: no pass, because nothing ran, and not undecided, because that is known.
    UNSUPPORTED = "unsupported", DASH, "skipped", False
    NO_DATA = "no_data", DASH, "skipped", False  # of memory, which was not measured on one side or both
    PASS = "pass", "✓", "", False

    sign: str
    junit: str
    is_moved: bool

    def __new__(cls, word: str, sign: str, junit: str, is_moved: bool) -> Verdict:
        member = str.__new__(cls, word)
        member._value_ = word
        member.sign, member.junit, member.is_moved = sign, junit, is_moved
        return member

    __str__ = str.__str__


VERDICTS = tuple(Verdict)
BROKEN = Verdict.BROKEN
REGRESSED = Verdict.REGRESSED
NO_LONGER_SUPPORTED = Verdict.NO_LONGER_SUPPORTED
FAILING = Verdict.FAILING
MEANING_CHANGED = Verdict.MEANING_CHANGED
OTHER_DRAWS = Verdict.OTHER_DRAWS
LESS_EXACT = Verdict.LESS_EXACT
OTHER_TYPE = Verdict.OTHER_TYPE
ABOUT = Verdict.ABOUT
UNDECIDED = Verdict.UNDECIDED
IMPROVED = Verdict.IMPROVED
FIXED = Verdict.FIXED
NEWLY_SUPPORTED = Verdict.NEWLY_SUPPORTED
MORE_EXACT = Verdict.MORE_EXACT
UNSUPPORTED = Verdict.UNSUPPORTED
NO_DATA = Verdict.NO_DATA
PASS = Verdict.PASS
RIGHT = frozenset({PASS, LESS_EXACT, MORE_EXACT, OTHER_TYPE})  # in both
EXACTNESS = frozenset({LESS_EXACT, MORE_EXACT})
ANOTHER_MEANING = frozenset({MEANING_CHANGED, OTHER_DRAWS})
OPEN = frozenset({UNDECIDED, ABOUT})  # neither a gate nor `--strict` may pass these
MOVED = frozenset(verdict for verdict in Verdict if verdict.is_moved)
WORSE = frozenset({BROKEN, REGRESSED, NO_LONGER_SUPPORTED})


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Trials that pass a rule, with the exact (Clopper-Pearson) interval of the share."""

    passed: int
    trials: int
    low: float
    high: float
    rule: str
    against: str

    @property
    def share(self) -> float:
        return self.passed / self.trials


@dataclass(frozen=True, kw_only=True)
class RecipeSide:
    """One target on one input recipe; `rates` holds every rule against every other target. `failing`: a trial that
    fails the deciding rule, with its worst element where that is known; empty where all pass."""

    recipe: str
    trials: int
    status: str
    message: str
    rates: list[Rate]
    max_abs: float | None
    max_units: float | None
    worst: str
    failing: str = ""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One target in one environment; `measured_with`: the kernel whose processes a reference was measured in."""

    environment: str
    status: str
    message: str = ""
    log_excerpt: str = ""
    fault: Fault = Fault.SUBJECT  # who failed, where it did not end well
    failure: FailureKind = FailureKind.OTHER  # how
    ended_after_s: float | None = None  # of a process that ended without a result: how long it had run
    record: str | None = None
    measured_with: str | None = None


@dataclass(frozen=True, kw_only=True)
class OutputSide:
    """One output of a problem's model in one environment; of a tensor alone the name is empty. `sha256`: per trial.
    `wrong`: in some trial, by the rule that decides."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    max_units: float | None
    sha256: tuple[str, ...]
    wrong: bool = False


@dataclass(frozen=True, kw_only=True)
class CorrectnessSide(Side):
    """One target's outputs in one environment, over all recipes. Errors are absolute, against `against`; units are
    rounding units, multiples of what correct rounding costs on this workload and dtype."""

    decides: str = ""
    rate: Rate | None = None
    agreement: dict[str, Rate] = field(default_factory=dict)
    max_abs: float | None = None
    max_units: float | None = None
    nonfinite_trials: int = 0
    repeats_differ: int = 0
    repeats_max_units: float | None = None
    repeats_max_abs: float | None = None
    inputs_mutated: int = 0
    unwritten_trials: int = 0
    leaves_range: int = 0  # trials in which plain arithmetic in the dtype overflows or underflows on its way
    writes: tuple[str, ...] = ()  # inputs that the problem's model writes to
    unloaded: bool = False  # it is built already, and could not be loaded
    when_timed: bool = False  # its status is of its launches: validation saw nothing wrong
    off_stream: bool = False  # a launch saw its work on another stream than the one it was given
    operators: list[str] = field(default_factory=list)
    unseen: str = ""  # known wrong answers that this validation would not detect
    precision: str = ""  # what the target was judged as
    choice: str = ""  # which of several ways the kernel says it took
    recipes: list[RecipeSide] = field(default_factory=list)
    outputs: list[OutputSide] = field(default_factory=list)

    @property
    def contradicts_itself(self) -> bool:
        """Return whether its record says that it is right, and a trial fails."""
        return self.status == "ok" and self.rate is not None and self.rate.passed < self.rate.trials

    @property
    def least_agreement(self) -> float | None:
        """The share of trials that agree with the reference that it agrees least with."""
        return min((rate.share for rate in self.agreement.values()), default=None)


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Outputs of both environments by digest, over the trials whose inputs were the same bytes. `unsteady`: trials
    whose own second run gave other bits, on the side that has more of them; bits of both sides then say nothing."""

    compared: int
    identical: int
    inputs_differ: int
    unsteady: int = 0

    @property
    def word(self) -> str:
        if self.unsteady:
            return "not bit-repeatable"
        if not self.compared:
            return "inputs differ" if self.inputs_differ else "unknown"
        return "identical" if self.identical == self.compared else "differ"


class MeaningEvidence(str, Enum):
    """What shows which of two float64 results is right."""

    FORMULA = "formula"  # of attention, written out
    FINITE_DIFFERENCES = "finite_differences"


@dataclass(frozen=True, kw_only=True)
class MeaningChange:
    """The float64 results of the baseline and of this environment differ by more than their rounding.

    `outputs`: names of those that differ; the other fields are of the first: the recipe and the trial, the `index` of
    the element that differs most, with its value in the baseline and here (where shapes differ, the shapes).
    `right`: the one environment for which there is evidence, `by` which; the first output is then the one that has it.
    """

    outputs: tuple[str, ...]
    output: str
    recipe: str
    trial: int
    kind: DifferenceKind
    elements: int
    of: int
    index: tuple[int, ...]
    before: str
    here: str
    right: str
    by: MeaningEvidence | None
    record: str


@dataclass(frozen=True, kw_only=True)
class Correctness:
    verdict: str
    why: str
    baseline: CorrectnessSide
    this: CorrectnessSide
    bits: Bits
    p_value: float | None = None
    q_value: float | None = None
    meaning: MeaningChange | None = None


# A GPU is timed twice: cold, with its L2 overwritten before each call, and hot, in replays of a CUDA graph. Of a
# reference with gradients the backward pass is timed by itself, too, cold.
COLD, HOT, BACKWARD = "cold", "hot", "backward"


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a median amounts to, and as shares of the peak that the same device reached in the same run; `message` says
    why a share is None."""

    tflops: float | None = None
    gbps: float | None = None
    tflops_share: float | None = None
    gbps_share: float | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """The GPU while one target was sampled, over all launches. `enqueue_us`: the host's time to enqueue one call."""

    enqueue_us: float | None
    sm_mhz: float | None
    throttled_samples: int
    throttled_launches: int
    capped_samples: int = 0  # taken under the power cap, and kept: `harness.stats.medians`
    capped_launches: int = 0


@dataclass(frozen=True, kw_only=True)
class MeasuredSide(Side):
    """What replicates of one target measured in one environment, by block. One launch is one replicate."""

    blocks: list[int] = field(default_factory=list)

    @property
    def by_block(self) -> dict[int, float]:
        """What is compared, by block."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class LatencySide(MeasuredSide):
    """Launch medians of one target in one environment, in microseconds. `low_us` and `high_us` are the interval of
    their median, None where too few launches support one."""

    medians_us: list[float] = field(default_factory=list)
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    samples: int = 0
    rates: Rates = field(default_factory=Rates)
    gpu: OnGpu | None = None
    wrong_output: bool = False
    failed_launches: int = 0

    @property
    def by_block(self) -> dict[int, float]:
        return dict(zip(self.blocks, self.medians_us, strict=True))


@dataclass(frozen=True, kw_only=True)
class MemorySide(MeasuredSide):
    """Peak memory of a target's calls in one environment; what is not by block is a median over the launches. On a GPU
    `reserved_bytes` is what PyTorch's allocator took for it, and `outside_bytes` what was left taken beside that."""

    peaks_bytes: list[int] = field(default_factory=list)
    peak_bytes: float | None = None
    kept_bytes: float | None = None
    reserved_bytes: float | None = None
    outside_bytes: float | None = None

    @property
    def by_block(self) -> dict[int, float]:
        """Each counts as at least `harness.stats.peaks.FLOOR_BYTES`."""
        return dict(zip(self.blocks, map(counted, self.peaks_bytes), strict=True))


def shared_blocks(base: MeasuredSide, this: MeasuredSide) -> tuple[list[float], list[float]]:
    """Return what both have of the same blocks: environments are compared only within a block."""
    left, right = base.by_block, this.by_block
    both = sorted(left.keys() & right.keys())
    return [left[block] for block in both], [right[block] for block in both]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """`ratio` of this environment to the baseline, with its interval and its test."""

    verdict: str
    why: str
    baseline: MeasuredSide
    this: MeasuredSide
    min_effect: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    spread: float | None = None

    @property
    def samples(self) -> tuple[list[float], list[float]]:
        return shared_blocks(self.baseline, self.this)


@dataclass(frozen=True, kw_only=True)
class Latency(Judged):
    """With the smallest slow-down that this run could have called. `launches_needed` is of undecided rows: so many
    would decide it, were its ratio what it is."""

    baseline: LatencySide
    this: LatencySide
    smallest_effect: float | None = None
    launches_needed: int | None = None
    estimate: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class Memory(Judged):
    baseline: MemorySide
    this: MemorySide

    @property
    def has_ratio(self) -> bool:
        """Return whether both peaks are large enough to divide one by the other."""
        return min(self.baseline.peak_bytes or 0.0, self.this.peak_bytes or 0.0) >= FLOOR_BYTES


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One observation, and the record that holds it (a path inside the run's folder)."""

    text: str
    record: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One cell (or reference x workload x device) against the same in the baseline environment.

    `latency` is of calls as they come, on a GPU with a cold cache; `hot` of a CUDA graph's replays, None on a CPU. With
    gradients a call is a step, forward and backward: `backward` is of its backward pass by itself, None where the run
    has none, and `parts` says what became of forward and of backward.
    """

    id: str
    kind: str
    target: str
    workload: str
    device: Device
    environment: str
    baseline: str
    control: bool
    alone: bool
    correctness: Correctness
    latency: Latency
    hot: Latency | None
    memory: Memory
    command: str
    eval_command: str
    backward: Latency | None = None
    parts: str = ""

    @property
    def modes(self) -> dict[str, Latency]:
        every = {COLD: self.latency, HOT: self.hot, BACKWARD: self.backward}
        return {mode: timed for mode, timed in every.items() if timed is not None}

    @property
    def timed(self) -> list[Latency]:
        """What is judged: where a graph serves one backward pass, that has no time of its own."""
        return [timed for timed in self.modes.values() if timed.verdict != NO_DATA]

    def uncompared(self, measured: Judged) -> bool:
        """Whether a time, or memory, is the baseline's own, with nothing to compare it with."""
        return self.alone and measured.verdict in (UNDECIDED, NO_DATA)
