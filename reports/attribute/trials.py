"""Every experiment as trials of one factor, and the one function that says what outcomes follow. Pure.

This module alone reads the records of experiments for what follows what.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any

from harness.schema.experiment_records import ExperimentFactor, FactorRecord
from harness.stats.peaks import counted
from harness.stats.screen import FEWEST_LAUNCHES, moved
from harness.worker import protocol
from reports.attribute import thresholds
from reports.attribute.messages import died


class Varied(str, Enum):
    """What an experiment varied."""

    CODE = "object code"
    VARIABLES = "variables"
    VERSION = "version"
    PACKAGE = "package"
    FILLING = "filling"
    CALLS_BEFORE = "calls before"

    __str__ = str.__str__


class Follows(Enum):
    """What outcomes follow. PLACE: all that is in the environment, except the factor. BOTH: neither alone. CHANCE: the
    same trial gave different outcomes. UNKNOWN: too little ran."""

    FACTOR = "factor"
    PLACE = "place"
    BOTH = "both"
    NEITHER = "neither"
    CHANCE = "chance"
    UNKNOWN = "unknown"


class Effect(Enum):
    """How much of the whole change a step makes."""

    MOST = "most"
    SOME = "some"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One outcome, with a level of a factor in a home that holds all else. None: it did not run."""

    factor: Varied
    level: str
    home: str
    outcome: Any


EffectOf = Callable[[Any, Any], Effect | None]


def exactly(one: Hashable, two: Hashable) -> Effect:
    return Effect.NONE if one == two else Effect.MOST


def follows(trials: Sequence[Trial], effect: EffectOf = exactly) -> Follows:
    """Return what outcomes follow: the factor's level, the home, both together, neither, or chance.

    The first trial's level and home are the baseline's. In one home a factor is followed where two of its levels
    differ. In two homes it is followed where it makes the change in each of them, and the home makes none; where one
    of the two exchanges did not run, the other one tells.
    """
    known: dict[tuple[str, str], Any] = {}
    for trial in trials:
        if trial.outcome is not None:
            first = known.setdefault((trial.home, trial.level), trial.outcome)
            if effect is exactly and first != trial.outcome:
                return Follows.CHANCE
    homes, levels = (list(dict.fromkeys(names)) for names in zip(*((t.home, t.level) for t in trials), strict=True))
    if len(homes) == 1:
        told = list(known.values())
        if len(told) < 2:
            return Follows.UNKNOWN
        return Follows.NEITHER if all(each == told[0] for each in told) else Follows.FACTOR
    one, two, three, four = (known.get(place) for level in levels for place in product(homes, [level]))
    complete = two is not None and three is not None
    if one is None or four is None or (two is None and three is None):
        return Follows.UNKNOWN
    factor, place = (
        {effect(*pair) for pair in pairs if None not in pair} - {None}
        for pairs in (((one, three), (two, four)), ((one, two), (three, four)))
    )
    whole = effect(one, four)
    if whole is None or not factor:
        return Follows.UNKNOWN
    if whole is Effect.NONE:
        return Follows.NEITHER if factor == place == {Effect.NONE} or not complete else Follows.BOTH
    if factor == {Effect.MOST} and place == {Effect.NONE}:
        return Follows.FACTOR
    if not complete:
        return Follows.UNKNOWN
    return Follows.PLACE if factor == {Effect.NONE} and place == {Effect.MOST} else Follows.BOTH


def figures_effect(one: Sequence[float], four: Sequence[float], min_effect: float) -> EffectOf:
    """Return how much of the change from `one` to `four` a step makes. Figures of launches count as changed where none
    lies among those without the factor; the factor makes most of the change where it makes half of it."""
    is_change = moved(one, four, min_effect) is not None
    whole = math.log(statistics.median(four) / statistics.median(one)) if one and four else 0.0

    def effect(without: Sequence[float], with_it: Sequence[float]) -> Effect | None:
        if min(len(without), len(with_it)) < FEWEST_LAUNCHES:
            return None
        if not is_change:
            return Effect.NONE
        own = math.log(statistics.median(with_it) / statistics.median(without))
        apart = moved(without, with_it, min_effect) is not None
        if own / whole >= thresholds.MOST and apart:
            return Effect.MOST
        return Effect.SOME if apart or abs(own) >= thresholds.MOST * abs(whole) else Effect.NONE

    return effect


# -- one factor, with the value of either environment in either ----------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one of the four gave: `died` where no run was left, for the first ended the process."""

    status: str
    message: str = ""
    runs: int = 0
    passed: int = 0
    bits: tuple[str, ...] = ()
    died: bool = False
    runtime: str = ""
    times_us: tuple[float, ...] = ()
    peaks_bytes: tuple[float, ...] = ()

    @property
    def share(self) -> float | None:
        return self.passed / self.runs if self.runs else None

    @property
    def ended(self) -> bool:
        return self.died or self.status not in protocol.RAN


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One factor of two environments, each value in each of them: `cells` by (home, whose value).

    `versions` are those of a package, and `problems` say why a pair could not be run. `by_bits`: right everywhere, and
    only its exactness changed, so that bits are compared, and not right with wrong.
    """

    factor: Varied
    base: str
    this: str
    cells: dict[tuple[str, str], Ran]
    path: str
    by_bits: bool = False
    package: str = ""
    versions: tuple[str, str] = ("", "")
    problems: tuple[str, ...] = ()
    timed: bool = False
    run: str = ""

    @property
    def runtimes(self) -> list[str]:
        """The runtime libraries that were loaded beside object code."""
        return [name for ran in self.cells.values() for name in ran.runtime.split(", ") if name]

    @property
    def places(self) -> list[tuple[str, str]]:
        """(home, level): the baseline's level in both homes, then the other's."""
        return [(home, level) for level in (self.base, self.this) for home in (self.base, self.this)]

    def trials(self, outcome: Callable[[Ran], Any]) -> list[Trial]:
        return [
            Trial(
                factor=self.factor,
                level=level,
                home=home,
                outcome=outcome(self.cells[home, level]) if (home, level) in self.cells else None,
            )
            for home, level in self.places
        ]

    @property
    def is_one_way(self) -> bool:
        """Whether one of the two exchanges could not be run."""
        return len(self.cells) < len(self.places)

    @property
    def outcomes(self) -> list[Trial]:
        crossed = self.factor in (Varied.VARIABLES, Varied.VERSION)
        return self.trials(_bits if self.by_bits else _all_right if crossed else _result)

    @property
    def follows(self) -> Follows:
        """What right and wrong follow, or bits where only exactness changed. Where all died nothing is told; and of a
        kernel, nothing where not all four ran."""
        if self.factor is not Varied.PACKAGE and self.is_one_way:
            return Follows.UNKNOWN
        if self.factor is Varied.CODE and all(ran.died for ran in self.cells.values()):
            return Follows.UNKNOWN
        return follows(self.outcomes)

    @property
    def needs_both(self) -> bool:
        """Whether only the other's factor in the other's home gives what the other does."""
        one, two, three, four = (trial.outcome for trial in self.outcomes)
        return None not in (one, two, three, four) and one == two == three != four

    @property
    def decides_somewhere(self) -> bool:
        """Whether the factor alone makes the outcome in one of the homes."""
        one, two, three, four = (trial.outcome for trial in self.outcomes)
        return any(None not in pair and pair[0] != pair[1] for pair in ((one, three), (two, four)))

    def time_follows(self, min_effect: float) -> Follows:
        return self._figures_follow(lambda ran: ran.times_us, min_effect)

    def memory_follows(self, min_effect: float) -> Follows:
        return self._figures_follow(lambda ran: ran.peaks_bytes, min_effect)

    def _figures_follow(self, read: Callable[[Ran], tuple[float, ...]], min_effect: float) -> Follows:
        trials = self.trials(lambda ran: read(ran) or None)
        one, four = (trials[n].outcome or () for n in (0, -1))
        if moved(one, four, min_effect) is None:
            return Follows.NEITHER if min(len(one), len(four)) >= FEWEST_LAUNCHES else Follows.UNKNOWN
        return follows(trials, figures_effect(one, four, min_effect))

    @property
    def ends_alike(self) -> bool:
        """Whether all that is not right ended in one way."""
        return len({each.status for each in self.cells.values() if each.passed < each.runs}) <= 1

    @property
    def all_or_none(self) -> bool:
        """Whether each of the four was right in all of its runs or in none, and often enough that it is not chance."""
        enough = thresholds.FEWEST_RUNS
        return all(r.passed in (0, r.runs) and (r.runs >= enough or r.died) for r in self.cells.values())

    def as_changed(self, worse_here: bool) -> bool:
        """Whether it met the change that validation shows, in that direction."""
        home, away = (self.cells.get((name, name)) for name in (self.base, self.this))
        if home is None or away is None:
            return False
        one, two = (-1.0 if each.ended else each.passed / max(1, each.runs) for each in (home, away))
        return one > two if worse_here else one < two


def _all_right(ran: Ran) -> bool:
    return ran.passed == ran.runs


def _bits(ran: Ran) -> Hashable:
    return (ran.status, ran.message) if ran.ended else ran.bits or None


def _result(ran: Ran) -> Hashable:
    """Return the share of runs that were right; of what ended otherwise, how."""
    if ran.died:
        return protocol.CRASHED
    return (ran.status, ran.message) if ran.ended else ran.share


def exchange_of(record: FactorRecord, path: str, target: str, by_bits: bool) -> Exchange:
    """Return what a factor experiment gave of one target. Object code that raised, or could not be loaded, says
    nothing."""
    is_swap, is_package = record.factor is ExperimentFactor.CODE, record.factor is ExperimentFactor.PACKAGE
    cells = {}
    for each in record.results:
        says_nothing = is_swap and not (each.status in protocol.RAN or died(each))
        if each.target != target or each.status == protocol.NOT_RUN or says_nothing:
            continue
        cells[each.home, each.level] = Ran(
            status=each.status,
            message="" if is_swap else each.message,
            runs=each.runs or not (is_swap or is_package),
            passed=each.passed,
            bits=tuple(each.output_sha256),
            died=not is_package and died(each),
            runtime=each.runtime,
            times_us=tuple(each.times_us),
            peaks_bytes=tuple(map(counted, each.peaks_bytes)),
        )
    untested = (each for each in record.results if not each.target and record.package)
    places = record.baseline, record.environment
    return Exchange(
        factor=Varied[record.factor.name],
        base=record.baseline,
        this=record.environment,
        cells=cells,
        path=path,
        by_bits=by_bits,
        package=record.package,
        versions=(record.versions.get(places[0], ""), record.versions.get(places[1], "")),
        problems=tuple(f"{record.package} of {each.level} in {each.home}: {each.message}" for each in untested),
        timed=record.timed,
        run=record.run,
    )
