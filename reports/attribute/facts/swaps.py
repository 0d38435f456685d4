"""Two factors, each with the value of either environment: object code, variables or the version that a file is told,
and where it ran. Such an experiment alone shows what right and wrong go with. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from harness.schema.experiment_records import Condition, SwapRecord, SwapResult
from harness.worker import protocol
from reports import model
from reports.attribute import thresholds
from reports.attribute.facts.messages import died

if TYPE_CHECKING:
    from reports.attribute.facts.cells import CellFacts

Outcome = str | float | tuple[str, ...] | None
OBJECT, VARIABLES, VERSION, PLACE, NEITHER, MIXED = "object", "variables", "version", "place", "neither", "mixed"


def goes_with(outcomes: Sequence[Outcome], first: str, second: str) -> str | None:
    """Which of two factors the outcomes go with, of both values of the first with both of the second: the baseline's
    with the baseline's, then with the other's, and so on. None: not all were tried, or all died."""
    if None in outcomes or all(outcome == protocol.CRASHED for outcome in outcomes):
        return None
    one, two, three, four = outcomes
    if one == two == three == four:
        return NEITHER
    if one == two and three == four:
        return first
    return second if one == three and two == four else MIXED


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Two environments' object code, each run in both. `follows`: what right and wrong go with, or that there are no
    outputs for the process died; where all four are right, or all wrong, the failure was not met and `follows` says
    NEITHER. None: not all ran, or all died. `bits`: the same of outputs, whether right or not."""

    path: str
    cells: dict[tuple[str, str], SwapResult]  # (code from, run in)
    follows: str | None
    bits: str | None


def swap_between(record: SwapRecord, path: str, base: str, this: str) -> Swap:
    cells = {
        (result.code_from, result.run_in): result
        for result in record.results
        if {result.code_from, result.run_in} <= {base, this} and (result.status in protocol.RAN or died(result))
    }
    ran = [cells.get(key) for key in ((base, base), (base, this), (this, base), (this, this))]
    follows, bits = (
        goes_with([outcome(each) if each else None for each in ran], OBJECT, PLACE) for outcome in (_share, _outputs)
    )
    return Swap(path=path, cells=cells, follows=follows, bits=bits)


def _share(result: SwapResult) -> Outcome:
    """That it died, or the share of runs that were right: other bits within the rule explain no failure."""
    if died(result):
        return protocol.CRASHED
    return result.passed / result.runs if result.runs else None


def _outputs(result: SwapResult) -> Outcome:
    return protocol.CRASHED if died(result) else tuple(result.output_sha256) or None


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """A kernel's runs with a factor of either environment in either, by (where, whose): how many were right, of how
    many, and how they ended. `died`: where no run was left, for the first ended the process. `by_bits`: it is right
    everywhere and only its exactness moved, so that bits are compared, and not right with wrong."""

    factor: str
    base: str
    this: str
    by_bits: bool = False
    runs: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    statuses: dict[tuple[str, str], str] = field(default_factory=dict)
    died: set[tuple[str, str]] = field(default_factory=set)
    outputs: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    path: str = ""

    def right(self, where: str, whose: str) -> bool | None:
        """Whether all runs were; None where there was none."""
        passed, runs = self.runs.get((where, whose), (None, 0))
        return None if passed is None else passed == runs

    def outcome(self, where: str, whose: str) -> Outcome:
        return self.outputs.get((where, whose)) if self.by_bits else self.right(where, whose)

    @property
    def follows(self) -> str | None:
        """What right and wrong go with, or bits; None where not all four were made, and where bits go with neither
        factor alone, for then they do not say which of the two moved the exactness."""
        base, this = self.base, self.this
        places = ((base, base), (base, this), (this, base), (this, this))
        found = goes_with([self.outcome(*place) for place in places], PLACE, self.factor)
        return None if self.by_bits and found == MIXED else found

    @property
    def alone(self) -> bool:
        """Whether, in one of the environments, the factor alone makes it right or wrong, or gives other bits."""
        sides = ([self.outcome(where, whose) for whose in (self.base, self.this)] for where in (self.base, self.this))
        return any(None not in side and side[0] != side[1] for side in sides)

    def seen(self, named: Callable[[str, str], str]) -> str:
        """What the four runs gave, in words; `named`: one of them, by where it ran and whose value it had."""
        if self.by_bits:
            alike = "are told" if self.factor == VERSION else "have"
            return f"right each time, and the same bits in both environments where they {alike} the same {self.factor}"
        rates = (f"{named(*place)}: {right}/{runs}" for place, (right, runs) in self.runs.items())
        return f"runs within tolerance, {', '.join(rates)}"

    @property
    def ends_alike(self) -> bool:
        """Whether all that is not right ended in one way."""
        ended = [self.statuses[place] for place, (passed, runs) in self.runs.items() if passed < runs]
        return len(set(ended)) <= 1

    @property
    def all_or_none(self) -> bool:
        """Whether each of the four was right in all of its runs or in none, and often enough that it is not chance."""
        return all(
            passed in (0, runs) and (runs >= thresholds.FEWEST_RUNS or place in self.died)
            for place, (passed, runs) in self.runs.items()
        )


def crossed(cell: CellFacts, factor: str, whose: Callable[[Condition], str]) -> Crossed:
    """The experiment of the factor's name on a cell. `whose` value of the factor a condition has; '' its own
    environment's."""
    base, this = cell.environments
    made = Crossed(factor=factor, base=base, this=this, by_bits=cell.verdict in model.EXACTNESS)
    for conditions in cell.of(factor):
        for result in conditions.record.results:
            if result.status != protocol.NOT_RUN:
                place = conditions.environment, whose(result.condition) or conditions.environment
                passed, runs = made.runs.get(place, (0, 0))
                made.runs[place] = passed + result.passed, runs + (result.runs or 1)
                made.statuses[place] = result.status
                made.outputs[place] = (*made.outputs.get(place, ()), *chain.from_iterable(result.output_sha256))
                if died(result):
                    made.died.add(place)
                made = replace(made, path=conditions.path)
    return made
