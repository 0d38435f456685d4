"""A cause: its class, its grade, the evidence for it, what was ruled out by what, and its rank among others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reports.model import Seen

DOES_NOT_BUILD = "does_not_build"
OWN_ERROR = "own_error"
ABI_BREAK = "abi_break"
WRONG_EVERYWHERE = "wrong_everywhere"
MEANING_CHANGED = "meaning_changed"
KERNEL_CODE_MOVED = "kernel_code_moved"
BUILD_MOVED = "build_moved"
REFERENCE_MOVED = "reference_moved"
OPERATOR_MOVED = "operator_moved"
COMPILED_CODE_MOVED = "compiled_code_moved"
DEFAULT_BACKEND_MOVED = "default_backend_moved"
INPUTS_MOVED = "inputs_moved"
UNINITIALISED_SHARED = "uninitialised_shared"
UNINITIALISED_GLOBAL = "uninitialised_global"
UNINITIALISED_HOST = "uninitialised_host"
RACE = "race"
OUT_OF_BOUNDS = "out_of_bounds"
WRONG_STREAM = "wrong_stream"
PREDECESSOR_SENSITIVITY = "predecessor_sensitivity"
MASKED_BY_INPUTS = "masked_by_inputs"
RANGE_OVERFLOW = "range_overflow"
NOT_REPEATABLE = "not_repeatable"
TOLERANCE_TOO_TIGHT = "tolerance_too_tight"
TOLERANCE_TOO_LOOSE = "tolerance_too_loose"
UNSUPPORTED_COMBINATION = "unsupported_combination"
ENVIRONMENT_CONFOUNDER = "environment_confounder"
COMPONENT_MOVED = "component_moved"
LATENCY_OPERATOR = "latency_operator"
LATENCY_LAUNCH_OVERHEAD = "latency_launch_overhead"
LATENCY_CLOCK_OR_LOAD = "latency_clock_or_load"
LATENCY_THREAD_COUNT = "latency_thread_count"
MEMORY_USE = "memory_use"
NOTHING_MOVED = "nothing_moved"
UNDECIDED = "undecided"

# Class to its name for people. The order is that of cards whose evidence is equally good: what makes every other
# comparison void first, then faults in memory, then what moved, then what was always so.
NAMES = {
    INPUTS_MOVED: "the inputs moved",
    MEANING_CHANGED: "the versions compute different things",
    DOES_NOT_BUILD: "does not build",
    OWN_ERROR: "an error of its own",
    WRONG_STREAM: "works on another stream",
    OUT_OF_BOUNDS: "out of bounds",
    UNINITIALISED_SHARED: "uninitialised shared memory",
    UNINITIALISED_GLOBAL: "uninitialised device memory",
    UNINITIALISED_HOST: "uninitialised host memory",
    RACE: "a race",
    PREDECESSOR_SENSITIVITY: "depends on what ran before",
    ABI_BREAK: "the binary does not fit",
    BUILD_MOVED: "the build moved",
    KERNEL_CODE_MOVED: "the kernel's code moved",
    COMPONENT_MOVED: "a package moved",
    ENVIRONMENT_CONFOUNDER: "the environment, not PyTorch's version alone",
    DEFAULT_BACKEND_MOVED: "PyTorch's default backend moved",
    REFERENCE_MOVED: "the reference moved",
    OPERATOR_MOVED: "PyTorch's operator moved",
    COMPILED_CODE_MOVED: "the code that is compiled at run time moved",
    UNSUPPORTED_COMBINATION: "not supported",
    MASKED_BY_INPUTS: "masked by the inputs",
    RANGE_OVERFLOW: "range or overflow",
    NOT_REPEATABLE: "not bit-repeatable",
    TOLERANCE_TOO_TIGHT: "the tolerance is too tight",
    TOLERANCE_TOO_LOOSE: "the tolerance is too loose",
    WRONG_EVERYWHERE: "wrong in every version",
    LATENCY_OPERATOR: "an operator's time",
    LATENCY_LAUNCH_OVERHEAD: "the number and cost of calls",
    LATENCY_THREAD_COUNT: "the number of threads",
    LATENCY_CLOCK_OR_LOAD: "clock or load",
    MEMORY_USE: "the memory of its calls",
    UNDECIDED: "undecided",
    NOTHING_MOVED: "nothing moved",
}
# What mends a cause, where that is the same for every kernel.
FIXES = {
    WRONG_STREAM: "launch on the stream that is given, in C++ at::cuda::getCurrentCUDAStream()",
    OUT_OF_BOUNDS: "check every index against the tensor's sizes, and against the rows and heads that it is meant for",
    UNINITIALISED_SHARED: "write every element of shared memory before it is read",
    UNINITIALISED_GLOBAL: "write every element of outputs and workspaces before it is read",
    UNINITIALISED_HOST: "give every variable and buffer a value before it is read",
    RACE: "put a barrier between a write and another thread's access",
    PREDECESSOR_SENSITIVITY: "look for what outlives a call: static variables, caches, workspaces that are not reset",
    MASKED_BY_INPUTS: "test on the inputs that show the fault, too",
    RANGE_OVERFLOW: "compute in a wider type; in a softmax, subtract the largest logit first",
    NOT_REPEATABLE: "add in a fixed order, without atomics",
    REFERENCE_MOVED: "in your tests, compare with a float64 truth instead of this reference",
    DEFAULT_BACKEND_MOVED: "in your tests, name the backend to compare with: torch.nn.attention.sdpa_kernel, or "
    "torch.backends.cuda.sdp_kernel in a version that lacks it",
    LATENCY_CLOCK_OR_LOAD: "measure again on an idle machine",
    LATENCY_THREAD_COUNT: "set the same number of threads in both environments: torch.set_num_threads",
    LATENCY_LAUNCH_OVERHEAD: "make fewer calls, each with more work",
    BUILD_MOVED: "build it with the same flags and compiler in both environments (flags, in matrix.yaml)",
}
UNINITIALISED = (UNINITIALISED_SHARED, UNINITIALISED_GLOBAL, UNINITIALISED_HOST)
CODE = (BUILD_MOVED, KERNEL_CODE_MOVED)
MEMORY = (OUT_OF_BOUNDS, *UNINITIALISED, RACE)
# A kernel's own, whichever version runs it.
FAULTS = (
    DOES_NOT_BUILD,
    OWN_ERROR,
    WRONG_STREAM,
    *MEMORY,
    PREDECESSOR_SENSITIVITY,
    MASKED_BY_INPUTS,
    RANGE_OVERFLOW,
    NOT_REPEATABLE,
    WRONG_EVERYWHERE,
)
MISTAKES, TO_CORRECT = (DOES_NOT_BUILD, OWN_ERROR), "to correct"  # the user's, which no evidence is weighed for
LATENCIES = (LATENCY_OPERATOR, LATENCY_LAUNCH_OVERHEAD, LATENCY_THREAD_COUNT, LATENCY_CLOCK_OR_LOAD)
REFERENCES = (REFERENCE_MOVED, OPERATOR_MOVED, COMPILED_CODE_MOVED, DEFAULT_BACKEND_MOVED)
# What is often seen of another fault: the cause of the left may follow from one of the right.
FOLLOWS = {PREDECESSOR_SENSITIVITY: MEMORY, RACE: (WRONG_STREAM,)}
MAY_FOLLOW = " It may follow from the first."
MOVERS = (*CODE, ENVIRONMENT_CONFOUNDER, COMPONENT_MOVED, *REFERENCES)

DECISIVE, STRONG, SUGGESTIVE = "decisive", "strong", "suggestive"
GRADES = {
    DECISIVE: "One factor was varied and all others held, or inputs and binary were identical bytes, so that only one "
    "factor could differ. Each rival was excluded by an observation that could have come out otherwise.",
    STRONG: "Everything recorded points here and nothing against it, but one step rests on a factor that was not "
    "varied alone.",
    SUGGESTIVE: "It fits everything observed. A rival, which the card names, is not excluded.",
    UNDECIDED: "Evidence is missing or contradicts itself. The next command would decide.",
}
BRIEF_GRADES = {
    DECISIVE: "one factor alone was varied, and the result followed it",
    STRONG: "all that is recorded points to it, but one step was not varied alone",
    SUGGESTIVE: "it fits, and something else may be why",
}
CORRECTNESS, LATENCY, OF_MEMORY = "correctness", "latency", "memory"  # what a cause is about


# Every rival that a card may list under "ruled out", and the causes that it stands for: no card may name one of these
# causes and rule it out.
NO_CAUSE = (
    "a change of results",
    "a choice by version",
    "another generator in that PyTorch",
    "more work",
    "the kernel",
    "the kernel's results",
    "the numbers",
    "the stored inputs",
    "the work itself",
)
EXCLUDES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("a race", "chance"), (RACE,)),
    **dict.fromkeys(("the algorithm", "a wrong result"), (WRONG_EVERYWHERE,)),
    **dict.fromkeys(("the kernel's code", "the kernel's code and build", "PyTorch's version and the build"), CODE),
    **dict.fromkeys(("clock and load", "other processes"), (LATENCY_CLOCK_OR_LOAD,)),
    **dict.fromkeys(("one operator", "the device's work"), (LATENCY_OPERATOR,)),
    **dict.fromkeys(("earlier calls", "what ran before"), (PREDECESSOR_SENSITIVITY,)),
    **dict.fromkeys(NO_CAUSE, ()),
    **dict.fromkeys(("PyTorch's operators", "PyTorch's version"), REFERENCES),
    "the plain operator": (OPERATOR_MOVED, REFERENCE_MOVED),
    "a fault in memory": MEMORY,
    "compiler and flags": (BUILD_MOVED,),
    "out of bounds": (OUT_OF_BOUNDS,),
    "rounding": (TOLERANCE_TOO_TIGHT,),
    "the algorithm, and rounding": (WRONG_EVERYWHERE, TOLERANCE_TOO_TIGHT),
    "the inputs": (INPUTS_MOVED,),
    "the kernel's code, the build and PyTorch's version": (*CODE, *REFERENCES),
    "the number of threads": (LATENCY_THREAD_COUNT,),
    "the range of its type": (RANGE_OVERFLOW,),
    "the truth and the tolerance": (TOLERANCE_TOO_TIGHT, TOLERANCE_TOO_LOOSE),
    "packages beside PyTorch": (COMPONENT_MOVED,),
    "the upgrade": (*CODE, ENVIRONMENT_CONFOUNDER, COMPONENT_MOVED),
    "uninitialised memory": UNINITIALISED,
    "what runs around the kernel": (ENVIRONMENT_CONFOUNDER, COMPONENT_MOVED),
}


@dataclass(frozen=True, kw_only=True)
class RuledOut:
    """A rival, one of those of `EXCLUDES`, and the observation that excludes it."""

    rival: str
    how: str
    record: str | None = None

    def __post_init__(self) -> None:
        if self.rival not in EXCLUDES:
            raise ValueError(f"{self.rival}: say in EXCLUDES which causes these words rule out")

    @property
    def causes(self) -> tuple[str, ...]:
        return EXCLUDES[self.rival]


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

    `rows` are the ids of the comparisons that it explains, and `wrong` whether outputs are wrong or missing in one of
    them, on either side; `aside`: a fault of its own, which does not explain them; `parts` are the other causes of
    the same rows: see `combined`. `measured`: what it names was itself measured on both sides, and accounts for the
    change. `improved`: all that it explains got better; `ratio`: of times, the one farthest from 1. `under`: the
    references with which a kernel's agreement moved. `not_excluded`: a rival that was not told apart from the cause
    whose part it is. `own_fix`: what mends it, where `FIXES` has nothing so near. Causes with the same `group_key`
    say the same of several subjects, and share a card. ValueError where it names a cause that it also rules out.
    """

    cause: str
    grade: str
    about: str
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
    aside: bool = False
    measured: bool = False
    improved: bool = False
    ratio: float = 1.0
    under: tuple[str, ...] = ()
    not_excluded: bool = False
    own_fix: str = ""
    group_key: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        both = {cause for each in self.ruled_out for cause in each.causes} & set(self.causes)
        if both:
            raise ValueError(f"one card names and rules out: {', '.join(sorted(both))}")

    @property
    def name(self) -> str:
        return NAMES[self.cause]

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
        known = self.grade in (DECISIVE, STRONG) or bool(self.under) or self.cause == BUILD_MOVED  # costs little
        if self.under and self.not_excluded:
            return ""
        fix = (self.own_fix or FIXES.get(self.cause, "")) if known else ""
        return fix.replace("this reference", f"PyTorch's {', '.join(self.under)}") if self.under else fix

    @property
    def workload(self) -> str:
        return self.workloads[0] if self.workloads else ""

    def told_after(self, lead: Cause) -> str:
        """Its statement, as a part of another cause, of which it may be what is seen. A race that a checker reports is
        one of its own."""
        seen = self.cause != RACE or self.grade == SUGGESTIVE
        return self.statement + (MAY_FOLLOW if seen and lead.cause in FOLLOWS.get(self.cause, ()) else "")

    @property
    def causes(self) -> tuple[str, ...]:
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
    shown = {lead.cause, *(each.cause for each in every if each.grade != SUGGESTIVE)}
    every = tuple(each for each in dict.fromkeys(every) if each.grade != SUGGESTIVE or each.cause not in shown)
    causes = {cause for each in (lead, *every) for cause in each.causes}

    def consistent(cause: Cause) -> Cause:
        return replace(cause, ruled_out=tuple(each for each in cause.ruled_out if not causes & set(each.causes)))

    return replace(consistent(lead), parts=tuple(map(consistent, every)))


def worse(one: str, two: str) -> str:
    """The less sure one of two grades."""
    return max(one, two, key=list(GRADES).index)


def rank(cause: Cause) -> tuple[bool, bool, int]:
    """Most certain first within what must be known first. Nothing that is undecided precedes what is shown, and a
    reference that moved under a kernel that is right does not precede what a kernel suffers from."""
    return cause.cause in (UNDECIDED, NOTHING_MOVED), _harmless(cause) or cause.aside, tuple(NAMES).index(cause.cause)


def _harmless(cause: Cause) -> bool:
    return bool(cause.kernel) and cause.cause in REFERENCES and not cause.wrong


def order(cause: Cause) -> tuple[bool, bool, bool, int, float, tuple[bool, bool, int]]:
    """What matters to the reader first: the user's kernels before PyTorch's references. Of either: its own faults, what
    broke, faults that lie aside, what became slower, by how much, what needs more memory, what may have moved, what got
    better, and last what is well."""
    slower = cause.about != CORRECTNESS and cause.ratio > 1
    if cause.about == OF_MEMORY:
        place = 4
    elif cause.about == LATENCY:
        place = 3 if slower else 4
    elif cause.aside:
        place = 2
    else:
        own = bool(cause.kernel) and cause.cause in (INPUTS_MOVED, *FAULTS)
        place = 0 if own else 4 if _harmless(cause) else 1
    size = -cause.ratio if slower else cause.ratio
    return cause.is_reference, cause.cause == NOTHING_MOVED, cause.improved, place, size, rank(cause)
