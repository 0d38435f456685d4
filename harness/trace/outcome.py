"""What a trace found, as summary.json holds it: facts, from which the page and the terminal make sentences."""

from __future__ import annotations

import enum
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.trace.diverge import Reason
from harness.trace.model import Kind, Raised
from harness.worker import protocol

SUMMARY = "summary.json"
LIMIT_UNITS = 32.0  # rounding units: what sums of a thousand terms may cost in the dtype, if errors are independent


class Verdict(str, enum.Enum):
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
        return self in (Verdict.DOES_NOT_REPEAT, Verdict.NOT_EXPLAINED, Verdict.POSSIBLE)


class Truth(str, enum.Enum):
    """Which version's operator is nearer to the ground truth, alone."""

    NOT_JUDGED = "not_judged"
    NOT_RUN = "not_run"  # alone it cannot run: `Judged.detail`
    OTHER_OUTPUTS = "other_outputs"  # of other types or shapes
    NO_GROUND_TRUTH = "no_ground_truth"  # it has no float64 form: `Judged.detail`
    ROUNDS_INSIDE = "rounds_inside"  # its float64 forms take in each version's own roundings
    OTHER_MEANING = "other_meaning"  # the float64 forms differ by more than rounding
    BOTH_ACCURATE = "both_accurate"
    ONE_CORRECT = "one_correct"
    ONE_NEARER = "one_nearer"


@dataclass(frozen=True)
class Judged:
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
class Cause:
    """One kind of operator, at which the versions diverge."""

    kind: Kind
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
    share: float | None = None  # of the end result's difference, that goes when it joins those before it
    is_needed: bool = True
    judged: Judged = Judged()
    program: int | None = None  # of the stored programs


@dataclass
class Outcome:
    """All facts of a trace."""

    good: str
    bad: str
    command: list[str]
    verdict: Verdict = Verdict.UNCHANGED
    numbers: float | None = None  # largest relative difference of a number that left PyTorch
    tensors: float | None = None  # and of a tensor that was left
    causes: list[Cause] = field(default_factory=list)
    earliest: int = 0  # of the causes, in the program's order
    comes_back: bool | None = None
    left: float | None = None
    not_repeatable: list[str] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    raised: OneRaised | None = None
    growth: list[tuple[int, float]] = field(default_factory=list)  # index in the bad trace, relative difference
    differing: list[dict[str, Any]] = field(default_factory=list)  # in the program's order
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)  # without the recorder, and with it
    torch: list[str] = field(default_factory=list)  # as it was observed inside
    notes: list[str] = field(default_factory=list)
    runs: int = 0
    script: str = ""  # that shows the first diverging operator alone


def save(outcome: Outcome, folder: Path) -> None:
    protocol.write_json(str(folder / SUMMARY), json_safe(asdict(outcome)))


def json_safe(value: Any) -> Any:
    """Return the value with infinity and NaN, which JSON has not, as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: json_safe(each) for key, each in value.items()}
    return [json_safe(each) for each in value] if isinstance(value, (list, tuple)) else value


def load(folder: Path) -> dict[str, Any]:
    """Return what `save` wrote."""
    facts: dict[str, Any] = protocol.read_json(str(folder / SUMMARY))
    return facts
