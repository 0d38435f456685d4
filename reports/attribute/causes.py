"""A cause: its kind, its grade, the evidence for it, what is ruled out, and its rank among others. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, Flag, auto

from reports.model import Seen


class Trait(Flag):
    """What several kinds of causes have in common."""

    NONE = 0
    CODE = auto()  # the kernel's own code is not the same
    REFERENCE = auto()  # what it is compared with is not the same
    MISTAKE = auto()  # the user's, to correct: no evidence is weighed
    FAULT = auto()  # a kernel's own, whichever version runs it
    MEMORY = auto()
    UNINITIALISED = auto()
    LATENCY = auto()
    SHARED = auto()  # one card holds all subjects
    EXPLAINED = auto()  # experiments on the same cells show more; of the others, another run does
    IN_MEMORY = MEMORY | FAULT | EXPLAINED
    NOT_WRITTEN = IN_MEMORY | UNINITIALISED


class Kind(str, Enum):
    """What a card names. The order is that of cards whose evidence is equally good: what makes every other comparison
    void first, then faults in memory, then what changed, then what was always so.

    A member is its word in records, its name on the page, its traits, and what mends it where that is the same for
    every kernel. What else belongs to a new one: a row of `table.ROWS`, and a template with its sentence.
    """

    INPUTS_MOVED = "inputs_moved", "the inputs moved", Trait.SHARED
    MEANING_CHANGED = "meaning_changed", "the versions compute different things"
    DOES_NOT_BUILD = "does_not_build", "does not build", Trait.MISTAKE | Trait.FAULT
    OWN_ERROR = "own_error", "an error of its own", Trait.MISTAKE | Trait.FAULT
    WRONG_STREAM = (
        "wrong_stream",
        "works on another stream",
        Trait.FAULT | Trait.EXPLAINED,
        "launch on the stream that is given, in C++ at::cuda::getCurrentCUDAStream()",
    )
    OUT_OF_BOUNDS = (
        "out_of_bounds",
        "out of bounds",
        Trait.IN_MEMORY,
        "check every index against the tensor's sizes, and against the rows and heads that it is meant for",
    )
    UNINITIALISED_SHARED = (
        "uninitialised_shared",
        "uninitialised shared memory",
        Trait.NOT_WRITTEN,
        "write every element of shared memory before it is read",
    )
    UNINITIALISED_GLOBAL = (
        "uninitialised_global",
        "uninitialised device memory",
        Trait.NOT_WRITTEN,
        "write every element of outputs and workspaces before it is read",
    )
    UNINITIALISED_HOST = (
        "uninitialised_host",
        "uninitialised host memory",
        Trait.NOT_WRITTEN,
        "give every variable and buffer a value before it is read",
    )
    RACE = (
        "race",
        "a race",
        Trait.IN_MEMORY,
        "put a barrier between a write and another thread's access",
    )
    PREDECESSOR_SENSITIVITY = (
        "predecessor_sensitivity",
        "depends on what ran before",
        Trait.FAULT | Trait.EXPLAINED,
        "look for what outlives a call: static variables, caches, workspaces that are not reset",
    )
    ABI_BREAK = "abi_break", "the binary does not fit"
    BUILD_MOVED = (
        "build_moved",
        "the build moved",
        Trait.CODE | Trait.EXPLAINED,
        "build it with the same flags and compiler in both environments (flags, in matrix.yaml)",
    )
    KERNEL_CODE_MOVED = "kernel_code_moved", "the kernel's code moved", Trait.CODE | Trait.EXPLAINED
    COMPONENT_MOVED = "component_moved", "a package moved", Trait.EXPLAINED
    ENVIRONMENT_CONFOUNDER = (
        "environment_confounder",
        "the environment, not PyTorch's version alone",
        Trait.SHARED | Trait.EXPLAINED,
    )
    DEFAULT_BACKEND_MOVED = (
        "default_backend_moved",
        "PyTorch's default backend moved",
        Trait.REFERENCE,
        "in your tests, name the backend to compare with: torch.nn.attention.sdpa_kernel, or "
        "torch.backends.cuda.sdp_kernel in a version that lacks it",
    )
    REFERENCE_MOVED = (
        "reference_moved",
        "the reference moved",
        Trait.REFERENCE,
        "in your tests, compare with a float64 truth instead of this reference",
    )
    OPERATOR_MOVED = "operator_moved", "PyTorch's operator moved", Trait.REFERENCE
    COMPILED_CODE_MOVED = "compiled_code_moved", "the code that is compiled at run time moved", Trait.REFERENCE
    UNSUPPORTED_COMBINATION = "unsupported_combination", "not supported", Trait.SHARED
    MASKED_BY_INPUTS = (
        "masked_by_inputs",
        "masked by the inputs",
        Trait.FAULT,
        "test on the inputs that show the fault, too",
    )
    RANGE_OVERFLOW = (
        "range_overflow",
        "range or overflow",
        Trait.FAULT,
        "compute in a wider type; in a softmax, subtract the largest logit first",
    )
    NOT_REPEATABLE = (
        "not_repeatable",
        "not bit-repeatable",
        Trait.FAULT | Trait.EXPLAINED,
        "add in a fixed order, without atomics",
    )
    TOLERANCE_TOO_TIGHT = "tolerance_too_tight", "the tolerance is too tight"
    TOLERANCE_TOO_LOOSE = "tolerance_too_loose", "the tolerance is too loose"
    WRONG_EVERYWHERE = "wrong_everywhere", "wrong in every version", Trait.FAULT | Trait.EXPLAINED
    LATENCY_OPERATOR = "latency_operator", "an operator's time", Trait.LATENCY | Trait.SHARED | Trait.EXPLAINED
    LATENCY_LAUNCH_OVERHEAD = (
        "latency_launch_overhead",
        "the number and cost of calls",
        Trait.LATENCY,
        "make fewer calls, each with more work",
    )
    LATENCY_THREAD_COUNT = (
        "latency_thread_count",
        "the number of threads",
        Trait.LATENCY | Trait.SHARED,
        "set the same number of threads in both environments: torch.set_num_threads",
    )
    LATENCY_CLOCK_OR_LOAD = (
        "latency_clock_or_load",
        "clock or load",
        Trait.LATENCY | Trait.SHARED,
        "measure again on an idle machine",
    )
    MEMORY_USE = "memory_use", "the memory of its calls"
    UNDECIDED = "undecided", "undecided", Trait.SHARED | Trait.EXPLAINED
    NOTHING_MOVED = "nothing_moved", "nothing moved"

    label: str
    traits: Trait
    fix: str

    def __new__(cls, word: str, label: str, traits: Trait = Trait.NONE, fix: str = "") -> Kind:
        member = str.__new__(cls, word)
        member._value_ = word
        member.label, member.traits, member.fix = label, traits, fix
        return member

    __str__ = str.__str__


class Grade(str, Enum):
    """How sure a cause is, best first."""

    PROVEN = "proven"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNDECIDED = "undecided"

    __str__ = str.__str__


class About(str, Enum):
    """What a cause explains."""

    CORRECTNESS = "correctness"
    LATENCY = "latency"
    MEMORY = "memory"

    __str__ = str.__str__


def _kinds_of(trait: Trait) -> tuple[Kind, ...]:
    return tuple(kind for kind in Kind if trait in kind.traits)


CODE = _kinds_of(Trait.CODE)
UNINITIALISED = _kinds_of(Trait.UNINITIALISED)
MEMORY = _kinds_of(Trait.MEMORY)
MISTAKES = _kinds_of(Trait.MISTAKE)
FAULTS = _kinds_of(Trait.FAULT)
LATENCIES = _kinds_of(Trait.LATENCY)
SHARED = _kinds_of(Trait.SHARED)
EXPLAINED = _kinds_of(Trait.EXPLAINED)
REFERENCES = _kinds_of(Trait.REFERENCE)
TO_CORRECT = "to correct"  # in place of a grade, of a mistake
# What is often seen of another fault: the cause of the left may follow from one of the right.
SEEN_OF = {Kind.PREDECESSOR_SENSITIVITY: MEMORY, Kind.RACE: (Kind.WRONG_STREAM,)}
MAY_FOLLOW = " It may follow from the first."

GRADES = {
    Grade.PROVEN: "One factor was varied and all others held, or inputs and binary were identical bytes, so that only "
    "one factor could differ. Each rival was excluded by an observation that could have come out otherwise.",
    Grade.LIKELY: "Everything recorded points here and nothing against it, but one step rests on a factor that was not "
    "varied alone.",
    Grade.POSSIBLE: "It fits everything observed. A rival, which the card names, is not excluded.",
    Grade.UNDECIDED: "Evidence is missing or contradicts itself. The next command would decide.",
}
BRIEF_GRADES = {
    Grade.PROVEN: "one factor alone was varied, and the result followed it",
    Grade.LIKELY: "all that is recorded points to it, but one step was not varied alone",
    Grade.POSSIBLE: "it fits, and something else may be why",
}


class Rival(str, Enum):
    """What else may be why, in the words of a card."""

    INPUTS = "the inputs"
    ERROR_SCALE = "the truth and the tolerance"
    CHANCE = "chance or a race"
    UNINITIALISED = "uninitialised memory"
    CALLS_BEFORE = "what ran before"
    OUT_OF_BOUNDS = "out of bounds"
    RANGE = "the range of its type"
    ALGORITHM = "the algorithm"
    CODE = "the kernel's code and build"
    FLAGS = "compiler and flags"
    SURROUNDINGS = "what runs around the kernel"
    PYTORCH = "PyTorch's version"
    PACKAGES = "packages beside PyTorch"
    UPGRADE = "the upgrade"
    PLAIN_OPERATOR = "the plain operator"
    ONE_OPERATOR = "one operator"
    MACHINE = "clock and load"
    THREADS = "the number of threads"
    LOOP_BOUNDS = "an error in a loop's bounds or tail that only some lengths reach"

    __str__ = str.__str__


# The causes that each stands for: no card may name one of these and rule it out.
STANDS_FOR: dict[Rival, tuple[Kind, ...]] = {
    Rival.INPUTS: (Kind.INPUTS_MOVED,),
    Rival.ERROR_SCALE: (),  # a tolerance that is the same may be too tight in both
    Rival.CHANCE: (Kind.RACE,),
    Rival.UNINITIALISED: UNINITIALISED,
    Rival.CALLS_BEFORE: (Kind.PREDECESSOR_SENSITIVITY,),
    Rival.OUT_OF_BOUNDS: (Kind.OUT_OF_BOUNDS,),
    Rival.RANGE: (Kind.RANGE_OVERFLOW,),
    Rival.ALGORITHM: (Kind.WRONG_EVERYWHERE,),
    Rival.CODE: CODE,
    Rival.FLAGS: (Kind.BUILD_MOVED,),
    Rival.SURROUNDINGS: (Kind.ENVIRONMENT_CONFOUNDER, Kind.COMPONENT_MOVED),
    Rival.PYTORCH: REFERENCES,
    Rival.PACKAGES: (Kind.COMPONENT_MOVED,),
    Rival.UPGRADE: (*CODE, Kind.ENVIRONMENT_CONFOUNDER, Kind.COMPONENT_MOVED),
    Rival.PLAIN_OPERATOR: (Kind.OPERATOR_MOVED, Kind.REFERENCE_MOVED),
    Rival.ONE_OPERATOR: (Kind.LATENCY_OPERATOR,),
    Rival.MACHINE: (Kind.LATENCY_CLOCK_OR_LOAD,),
    Rival.THREADS: (Kind.LATENCY_THREAD_COUNT,),
    Rival.LOOP_BOUNDS: (),
}


@dataclass(frozen=True, kw_only=True)
class RuledOut:
    """A rival, and the observation that excludes it."""

    rival: Rival
    how: str
    record: str | None = None

    @property
    def causes(self) -> tuple[Kind, ...]:
        return STANDS_FOR[self.rival]


GOOD, BAD, SAME, DIFFERENT, PLAIN = "good", "bad", "same", "different", ""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One field of a figure. `share`, between -1 and 1, is drawn as a bar; below zero to the left."""

    text: str
    state: str = PLAIN
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A small table to check at a glance; every row is a label and one field for each column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    record: str | None = None


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why one kernel, or one reference (`kernel` is then empty), moved on these workloads in one environment. An
    operator that is measured by itself stands in a reference's place, and `is_operator` says so.

    `rows` are the ids of the comparisons that it explains, and `wrong` whether outputs are wrong or missing in one
    of them, on either side; `parts` are the other causes of the same rows: see `combined`. `measured`: what it
    names was itself measured on both sides, and accounts for the change. `improved`: all that it explains got
    better; `ratio`: of times, the one farthest from 1. `under`: the references with which a kernel's agreement
    moved. `not_excluded`: a rival that was not told apart from the cause whose part it is. `own_fix`: what mends
    it, where its kind's `fix` is not so near; `tell` makes the statement for other environments and references. Causes
    with the same `group_key` say the same of several subjects, and share a card. ValueError where it names a cause
    that it also rules out.
    """

    cause: Kind
    grade: Grade
    about: About
    kernel: str
    reference: str
    workloads: tuple[str, ...]
    device: str
    environment: str
    baseline: str
    statement: str
    evidence: tuple[Seen, ...]
    ruled_out: tuple[RuledOut, ...] = ()
    next_command: str = ""
    figures: tuple[Figure, ...] = ()
    parts: tuple[Cause, ...] = ()
    rows: tuple[str, ...] = ()
    is_operator: bool = False
    wrong: bool = False
    measured: bool = False
    improved: bool = False
    ratio: float = 1.0
    under: tuple[str, ...] = ()
    not_excluded: bool = False
    own_fix: str = ""
    tell: Callable[[str, str], str] | None = field(default=None, repr=False, compare=False)
    group_key: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        both = {cause for each in self.ruled_out for cause in each.causes} & set(self.causes)
        if both:
            raise ValueError(f"one card names and rules out: {', '.join(sorted(both))}")

    @property
    def name(self) -> str:
        return self.cause.label

    @property
    def mark(self) -> str:
        """Its grade, for people; of a mistake, what to do."""
        return TO_CORRECT if self.cause in MISTAKES else self.grade

    @property
    def subject(self) -> str:
        return self.kernel or self.reference

    @property
    def is_reference(self) -> bool:
        """Whether it is about one of PyTorch's references, and not about what the run is for."""
        return not (self.kernel or self.is_operator)

    @property
    def fix(self) -> str:
        """What mends it; empty where the evidence only suggests it, or nothing general can be said. Of a reference that
        moved under a kernel that did not it holds whatever moved the reference."""
        known = (
            self.grade in (Grade.PROVEN, Grade.LIKELY) or bool(self.under) or self.cause == Kind.BUILD_MOVED
        )  # costs little
        if self.under and self.not_excluded:
            return ""
        fix = (self.own_fix or self.cause.fix) if known else ""
        return fix.replace("this reference", f"PyTorch's {', '.join(self.under)}") if self.under else fix

    def retold(self, this: str, reference: str) -> Cause:
        """Return it with a statement about these environments and references."""
        return replace(self, statement=self.tell(this, reference)) if self.tell is not None else self

    @property
    def workload(self) -> str:
        return self.workloads[0] if self.workloads else ""

    def told_after(self, lead: Cause) -> str:
        """Its statement, as a part of another cause, of which it may be what is seen. A race that a checker reports is
        one of its own."""
        seen = self.cause != Kind.RACE or self.grade == Grade.POSSIBLE
        return self.statement + (MAY_FOLLOW if seen and lead.cause in SEEN_OF.get(self.cause, ()) else "")

    @property
    def causes(self) -> tuple[Kind, ...]:
        """This class, and those of its parts."""
        return (self.cause, *(part.cause for part in self.parts))

    @property
    def own_parts(self) -> tuple[Cause, ...]:
        """Its parts; of a fault of the kernel's own, not those about a reference under it: they prove and rule out
        something else, and the reference's card has them."""
        return tuple(part for part in self.parts if self.under or not part.under)

    @property
    def added(self) -> tuple[Seen, ...]:
        """Evidence of its parts, beside its own."""
        own = set(self.evidence)
        return tuple(dict.fromkeys(seen for part in self.own_parts for seen in part.evidence if seen not in own))

    @property
    def excluded(self) -> tuple[RuledOut, ...]:
        """What it rules out, and what its parts do, each rival once."""
        every = (*self.ruled_out, *(each for part in self.own_parts for each in part.ruled_out))
        return tuple({each.rival: each for each in reversed(every)}.values())[::-1]

    @property
    def drawn(self) -> tuple[Figure, ...]:
        """Its own figures, and the first of each part."""
        of_parts = (figure for part in self.own_parts for figure in part.figures[:1])
        return tuple(dict.fromkeys((*self.figures, *of_parts)))


def combined(lead: Cause, *parts: Cause) -> Cause:
    """One cause with others as its parts. Rivals that are among them are no longer ruled out. A part that is only
    suggested is left out where the same cause leads, or is better shown."""
    every = (*lead.parts, *(each for part in parts for each in (replace(part, parts=()), *part.parts)))
    shown = {lead.cause, *(each.cause for each in every if each.grade != Grade.POSSIBLE)}
    every = tuple(each for each in dict.fromkeys(every) if each.grade != Grade.POSSIBLE or each.cause not in shown)
    causes = {cause for each in (lead, *every) for cause in each.causes}

    def consistent(cause: Cause) -> Cause:
        return replace(cause, ruled_out=tuple(each for each in cause.ruled_out if not causes & set(each.causes)))

    return replace(consistent(lead), parts=tuple(map(consistent, every)))


def worse(one: Grade, two: Grade) -> Grade:
    """Return the less sure one of two grades."""
    return max(one, two, key=list(Grade).index)


def rank(cause: Cause) -> tuple[bool, bool, int]:
    """Most certain first within what must be known first. Nothing that is undecided precedes what is shown, and a
    reference that moved under a kernel that is right does not precede what a kernel suffers from."""
    return (
        cause.cause in (Kind.UNDECIDED, Kind.NOTHING_MOVED),
        _harmless(cause),
        list(Kind).index(cause.cause),
    )


def _harmless(cause: Cause) -> bool:
    return bool(cause.kernel) and cause.cause in REFERENCES and not cause.wrong


def order(cause: Cause) -> tuple[bool, bool, bool, int, float, tuple[bool, bool, int]]:
    """What matters to the reader first: the user's kernels before PyTorch's references. Of either: its own faults, what
    broke, what became slower, by how much, what needs more memory, what may have moved, what got
    better, and last what is well."""
    slower = cause.about != About.CORRECTNESS and cause.ratio > 1
    if cause.about == About.MEMORY:
        place = 4
    elif cause.about == About.LATENCY:
        place = 3 if slower else 4
    else:
        own = bool(cause.kernel) and cause.cause in (Kind.INPUTS_MOVED, *FAULTS)
        place = 0 if own else 4 if _harmless(cause) else 1
    size = -cause.ratio if slower else cause.ratio
    return cause.is_reference, cause.cause == Kind.NOTHING_MOVED, cause.improved, place, size, rank(cause)
