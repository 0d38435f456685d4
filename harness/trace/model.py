"""What is recorded and what is found, as types: a trace, as the recorder wrote it, and a summary, as summary.json has
it.

A trace is operators, with digests and sketches of what goes in and comes out. A summary is facts, from which the page
and the terminal make sentences.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, TypeAdapter

from harness.worker import protocol

Slot = tuple[int, int]  # an operator's index, and which of its outputs
Sketch = np.ndarray[Any, np.dtype[np.float64]]
BUCKETS = 64
SUMMARY = "summary.json"
LIMIT_UNITS = 32.0  # rounding units: what sums of a thousand terms may cost in the dtype, if errors are independent
UNKNOWN = "?"  # in place of a digest, or of an argument: what an operator was given cannot be read


@dataclass(frozen=True)
class Value:
    """A tensor at an operator. `digest` is empty where nothing was computed, as of uninitialised memory and views.
    `source` is the output that an input is; `row` the row of a floating output's sketch."""

    digest: str
    type: str
    strides: tuple[int, ...]
    source: Slot | None = None
    row: int | None = None

    def differs(self, other: Value) -> bool:
        return self.type != other.type or (self.digest != other.digest and bool(self.digest and other.digest))


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator."""

    index: int
    name: str
    phase: str
    module: str
    line: str
    function: str = ""  # that the line calls, as far as that is known
    scalars: tuple[str, ...] = ()
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    generator: str = ""  # digest of the state that it drew from
    value: str = ""  # that left PyTorch
    put: tuple[int, ...] = ()  # outputs that were substituted
    fed: tuple[int, ...] = ()  # inputs that were substituted: `inputs` has what they were

    @property
    def is_given_unknown(self) -> bool:
        """Return whether something that it was given cannot be read, and may differ."""
        return UNKNOWN in self.scalars or any(value.digest == UNKNOWN for value in self.inputs)

    @property
    def is_view(self) -> bool:
        """Return whether it computes nothing."""
        return bool(self.outputs) and not any(output.digest for output in self.outputs)


@dataclass(frozen=True)
class Raised:
    """Where the exception that ended a script comes from."""

    line: str
    function: str = ""  # of PyTorch, that the line calls
    operator: str = ""  # that raised it
    given: tuple[str, ...] = ()  # digests of the tensors that this was given
    is_lacking: bool = False  # PyTorch has no such name

    @property
    def is_pytorchs(self) -> bool:
        """Return whether PyTorch raised it, or lacks what is asked for."""
        return bool(self.function or self.operator or self.is_lacking)


@dataclass(frozen=True)
class ScriptEnd:
    """How a run of the script ended."""

    torch: str = ""
    code: int = 0
    exception: str = ""
    unsupported: str = ""
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    raised: Raised | None = None
    alive: tuple[Slot, ...] = ()  # outputs that the script still held at its end

    @property
    def failure(self) -> str:
        """Return the exception or exit code; empty where it ended well."""
        return self.exception or (f"exit code {self.code}" if self.code else "")


@dataclass(frozen=True)
class Trace:
    """The operators of one run, in order, and how the run ended."""

    operators: tuple[OperatorCall, ...]
    end: ScriptEnd
    sketches: Sketch  # a row each, as `Value.row` numbers them

    def output(self, slot: Slot) -> Value:
        return self.operators[slot[0]].outputs[slot[1]]

    def sketch(self, value: Value) -> Sketch | None:
        return None if value.row is None else self.sketches[value.row]

    def find_last_outputs(self) -> list[Slot]:
        """Return the outputs of the last operator that has a floating one."""
        for operator in reversed(self.operators):
            if any(value.row is not None for value in operator.outputs):
                return [(operator.index, slot) for slot, value in enumerate(operator.outputs) if value.row is not None]
        return []

    def find_final_outputs(self) -> list[Slot]:
        """Return what the script held at its end, and the last outputs, as far as something was computed."""
        slots = dict.fromkeys([*self.end.alive, *self.find_last_outputs()])
        return [slot for slot in slots if self.output(slot).digest]

    def find_read_outputs(self) -> set[Slot]:
        """Return the outputs that an operator reads."""
        return {value.source for operator in self.operators for value in operator.inputs if value.source is not None}

    def name_operators(self, indices: Iterable[int], with_views: bool = False) -> tuple[str, ...]:
        """Return the names of these operators, each once; those that compute nothing only `with_views`."""
        operators = [self.operators[index] for index in indices]
        return tuple(dict.fromkeys(each.name for each in operators if with_views or not each.is_view))


@dataclass(frozen=True)
class OperatorKind:
    """The operators of a site, by name. Sites of one kind are substituted together."""

    good: tuple[str, ...]
    bad: tuple[str, ...]
    is_region: bool = False

    def __str__(self) -> str:
        """Return the short form of a table: `mm`, or `mul -> flash`."""
        return f"{_list(self.good)} -> {_list(self.bad)}" if self.is_region else _list(self.bad)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


# -- what is found ------------------------------------------------------------------------------------------------


class Reason(str, enum.Enum):
    """What makes the outputs differ, where all that goes in is equal."""

    VALUES = "values"  # the operator computes other values
    LAYOUT = "layout"  # its inputs have other strides
    ARGUMENTS = "arguments"  # it is called with other arguments
    DRAWS = "draws"  # it draws other random numbers, or from another state of the generator


class TraceVerdict(str, enum.Enum):
    """What is known of why the end results differ."""

    UNCHANGED = "unchanged"  # no operator diverges
    NO_EFFECT = "no_effect"  # an operator diverges, and the end result is the same
    DOES_NOT_REPEAT = "does_not_repeat"  # a version's own two runs differ
    PROVEN = "proven"  # the substitution brings the end result back, bit for bit
    POSSIBLE = "possible"  # operators diverge; their substitution leaves a difference, or is not possible
    RAISED = "raised"  # PyTorch raises an exception in one version
    NOT_EXPLAINED = "not_explained"

    @property
    def is_inconclusive(self) -> bool:
        return self in (TraceVerdict.DOES_NOT_REPEAT, TraceVerdict.NOT_EXPLAINED, TraceVerdict.POSSIBLE)


class Truth(str, enum.Enum):
    """Which version's operator is nearer to the ground truth, alone."""

    NOT_JUDGED = "not_judged"
    NOT_RUN = "not_run"  # alone it cannot run: `Accuracy.detail`
    OTHER_OUTPUTS = "other_outputs"  # of other types or shapes
    NO_GROUND_TRUTH = "no_ground_truth"  # it has no float64 form: `Accuracy.detail`
    ROUNDS_INSIDE = "rounds_inside"  # its float64 forms take in each version's own roundings
    OTHER_MEANING = "other_meaning"  # the float64 forms differ by more than rounding
    BOTH_ACCURATE = "both_accurate"
    ONE_CORRECT = "one_correct"
    ONE_NEARER = "one_nearer"


@dataclass(frozen=True)
class Accuracy:
    """What an operator does alone. Errors are in rounding units; None where there is no ground truth."""

    truth: Truth = Truth.NOT_JUDGED
    detail: str = ""
    exact_difference: float | None = None  # of the two float64 forms, relative, in the norm
    good_units: float | None = None
    bad_units: float | None = None
    is_deterministic: bool = True
    is_equal_alone: bool = False  # the two versions give the same bits


@dataclass(frozen=True)
class OneRaised:
    """An exception of one version only."""

    version: str
    other: str  # the version that raised none
    text: str
    source: str  # the text of the line
    where: Raised
    other_returned: bool  # in the other version the same operator, on the same bits, returned


@dataclass(kw_only=True)
class DivergingKind:
    """One kind of operator, at which the versions diverge."""

    kind: OperatorKind
    function: str  # that the line calls
    line: str
    source: str  # the text of that line
    module: str
    phase: str
    reason: Reason
    changes: list[str]  # arguments, or strides, that differ: in each version
    index: int | None  # in the bad trace
    instances: int = 0  # whose outputs were substituted
    others: list[list[str]] = field(default_factory=list)  # further lines where it was substituted, and their text
    is_needed: bool = True
    judged: Accuracy = Accuracy()
    program: int | None = None  # of the stored programs


@dataclass(frozen=True)
class DifferingSite:
    """A row of the table of what differs."""

    kind: str
    diverges: bool
    line: str
    module: str
    phase: str


@dataclass
class TraceSummary:
    """All facts of a trace."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")

    good: str
    bad: str
    command: list[str]
    verdict: TraceVerdict = TraceVerdict.UNCHANGED
    numbers: float | None = None  # largest relative difference of a number that left PyTorch
    tensors: float | None = None  # and of a tensor that was left
    causes: list[DivergingKind] = field(default_factory=list)  # what is needed first, in the program's order
    comes_back: bool | None = None
    left: float | None = None
    not_repeatable: list[str] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    raised: OneRaised | None = None
    differing: list[DifferingSite] = field(default_factory=list)  # the first ones, in the program's order
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)  # without the recorder, and with it
    torch: list[str] = field(default_factory=list)  # as it was observed inside
    notes: list[str] = field(default_factory=list)
    runs: int = 0
    script: str = ""  # that shows the first diverging operator alone


# -- files -----------------------------------------------------------------------------------------------------------

OPERATOR, END, FOUND = TypeAdapter(OperatorCall), TypeAdapter(ScriptEnd), TypeAdapter(TraceSummary)


def load_end(folder: Path) -> ScriptEnd:
    """Return how the run in a folder ended."""
    return END.validate_json((folder / "end.json").read_bytes())


def load_trace(folder: Path) -> Trace:
    """Return the trace of a folder. OSError or ValueError where it is not whole."""
    with (folder / "trace.jsonl").open("rb") as lines:
        operators = tuple(map(OPERATOR.validate_json, lines))
    sketches = np.fromfile(folder / "sketches.bin", dtype="<f8").reshape(-1, BUCKETS)
    return Trace(operators, load_end(folder), sketches)


def save_summary(summary: TraceSummary, folder: Path) -> None:
    protocol.write_atomically(str(folder / SUMMARY), FOUND.dump_json(summary, indent=1))


def load_summary(folder: Path) -> TraceSummary:
    """Return what `save_summary` wrote."""
    return FOUND.validate_json((folder / SUMMARY).read_bytes())
