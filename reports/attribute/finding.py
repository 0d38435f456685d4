"""What a rule hands over: which rows its cause explains, how that was shown, and what its words need. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Grade, Kind, Rival
from reports.attribute.cells import CellFacts
from reports.attribute.experiments import CallOrder, Conditions, Detection, LengthTrials, Spread
from reports.attribute.profiles import LinesRun, Profiles
from reports.attribute.times import TimeChange
from reports.attribute.trials import Exchange
from reports.compare.differences import Difference
from reports.model import CorrectnessSide, Seen


class Shown(Enum):
    """How a cause was shown. FOLLOWED: the result followed the one factor that was varied, or the cause is itself a
    fact of the records. TOGETHER: cause and result changed together. HINT: it would explain the result."""

    FOLLOWED = "followed"
    TOGETHER = "together"
    HINT = "hint"
    NOT = "not"


def grade_of(shown: Shown, missing: Sequence[str]) -> Grade:
    """Return the grade of what was shown; `missing` are the rivals that nothing excludes."""
    match shown:
        case Shown.FOLLOWED:
            return Grade.LIKELY if missing else Grade.PROVEN
        case Shown.TOGETHER:
            return Grade.POSSIBLE if missing else Grade.LIKELY
        case Shown.HINT:
            return Grade.POSSIBLE
        case Shown.NOT:
            return Grade.UNDECIDED


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`needs`: what must be excluded before the cause is proven, each with what excludes it. `out`: what else the
    experiment excludes, in words or as it was seen. `words`: facts that the sentence needs, alike of all causes that
    share a card; `details`: those that may differ. All other fields are facts, which templates/evidence.j2 cites and of
    which `figures` draws tables. `kind`, `template`: where they are not the row's; `also`: another cause of the same
    rows."""

    cells: Iterable[CellFacts]
    shown: Shown
    kind: Kind | None = None
    template: str = ""
    needs: Mapping[str, object] = field(default_factory=dict)
    out: Mapping[Rival, Seen | str | None] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    seen: Iterable[Seen | None] = ()
    spreads: Sequence[tuple[CellFacts, Spread]] = ()
    found: Sequence[tuple[CellFacts, Detection]] = ()
    runs: Sequence[tuple[CellFacts, Conditions]] = ()
    orders: Sequence[tuple[CellFacts, CallOrder]] = ()
    lengths: Sequence[LengthTrials] = ()
    exchange: tuple[CellFacts, Exchange] | None = None
    sides: Sequence[tuple[CellFacts, CorrectnessSide]] = ()
    crossed: Sequence[str] | None = None
    lines: LinesRun | None = None
    profiles: Profiles | None = None
    differences: Sequence[Difference] = ()
    code: bool = False
    measured: bool = False
    under: tuple[str, ...] = ()
    fix: str = ""
    command: str = ""
    also: Finding | None = None


def first_of(cells: Iterable[CellFacts], *pairs: Iterable[tuple[CellFacts, Any]]) -> list[CellFacts]:
    """Return these cells and those of all pairs, each once."""
    return list(dict.fromkeys([*cells, *(cell for group in pairs for cell, _ in group)]))


Rule = Callable[[CaseFacts], Finding | None]
TimeRule = Callable[[TimeChange], Finding | None]
