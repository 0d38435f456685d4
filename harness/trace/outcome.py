"""What a trace found, as summary.json holds it: facts first, then sentences."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.worker import protocol

SUMMARY = "summary.json"
NOTHING_MOVED, NO_EFFECT, DOES_NOT_REPEAT = "nothing_moved", "no_effect", "does_not_repeat"
PROVEN, NOT_PROVEN, NOT_EXPLAINED = "proven", "not_proven", "not_explained"
RAISED = "raised"  # PyTorch raises an exception in one version alone, and that is the answer
DECISIVE, SUGGESTIVE = "decisive", "suggestive"


@dataclass(frozen=True)
class Judged:
    """What an operator does alone. Errors are in rounding units; None where there is no float64 form, or no single
    truth."""

    text: str = ""
    exact_difference: float | None = None  # of the two float64 forms, relative, in the norm
    good_units: float | None = None
    bad_units: float | None = None


@dataclass(frozen=True)
class RaisedThere:
    """An exception of one version alone. `by_pytorch`: PyTorch raised it, not the script; `returned`: in the other
    version the same operator, on the same bits, returned."""

    version: str
    text: str
    line: str
    source: str
    function: str
    operator: str
    by_pytorch: bool
    returned: bool


@dataclass
class Cause:
    """One kind of operator, at which the versions part."""

    kind: str
    line: str
    source: str  # the text of that line
    others: list[list[str]] = field(default_factory=list, kw_only=True)  # further lines where it was put back, and text
    module: str
    phase: str
    why: str
    instances: int  # whose outputs were replaced
    share: float | None  # of the end result's difference, that goes when it is put back after those before it
    bad_index: int | None
    judged: Judged
    needed: bool = True
    program: int | None = None  # of the stored programs
    function: str = ""  # that the line calls


@dataclass
class Outcome:
    good: str
    bad: str
    command: list[str]
    options: list[str] = field(default_factory=list)  # of the trace, that decide what is recorded and measured
    part: str = ""  # of the script, that was recorded; empty: all
    verdict: str = NOTHING_MOVED
    grade: str = ""
    answer: str = ""  # the headline
    rest: list[list[str]] = field(default_factory=list)  # [label, sentence]
    numbers: float | None = None  # largest relative difference of a number that left PyTorch
    tensors: float | None = None  # and of a tensor that was left
    elsewhere: float | None = None  # and of a number that left PyTorch outside of the part
    elsewhere_left: float | None = None  # that is left when outputs were put back
    causes: list[Cause] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    comes_back: bool | None = None
    reverse: bool | None = None
    reverse_with: list[str] = field(default_factory=list)  # kinds that it would need besides
    left: float | None = None
    not_repeatable: list[str] = field(default_factory=list)
    printed: list[list[str]] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    raised: RaisedThere | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    growth: list[list[float]] = field(default_factory=list)  # place in the bad trace, relative difference
    first: list[dict[str, Any]] = field(default_factory=list)  # what differs, in the program's order
    counts: dict[str, int] = field(default_factory=dict)
    entry: list[str] = field(default_factory=lambda: ["", ""])  # what came in otherwise than by an operator, and where
    cost: dict[str, dict[str, float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    extracted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: int = 0


def save(outcome: Outcome, folder: Path) -> None:
    protocol.write_json(str(folder / SUMMARY), json_safe(asdict(outcome)))


def json_safe(value: Any) -> Any:
    """JSON has neither infinity nor NaN: they are text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: json_safe(each) for key, each in value.items()}
    return [json_safe(each) for each in value] if isinstance(value, (list, tuple)) else value


def load(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = protocol.read_json(str(folder / SUMMARY))
    return found
