"""What the experiments on one cell show, before any cause is named. Pure.

Outputs are compared by digest, trial by trial, and only where the inputs were the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.schema.experiment_records import (
    CheckerFinding,
    CheckerResult,
    CheckersRecord,
    Condition,
    ConditionResult,
    ConditionsRecord,
)
from harness.stats.shrink import LENGTH, Point, Sizes, points_of, smallest
from harness.worker import protocol
from reports.attribute import thresholds
from reports.attribute.trials import Follows, Trial, Varied, follows

CONSTANT = ("zero", "nan", "max")  # `random` may be another pattern in each repeat


def passes(result: ConditionResult) -> bool:
    return result.runs > 0 and result.passed == result.runs


def fails(result: ConditionResult) -> bool:
    return result.passed < result.runs


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The record of one experiment that ran a kernel under changed conditions."""

    record: ConditionsRecord
    path: str

    @property
    def environment(self) -> str:
        return self.record.environment

    @cached_property
    def ran(self) -> list[ConditionResult]:
        return [result for result in self.record.results if result.status in protocol.RAN]

    @cached_property
    def loose(self) -> list[ConditionResult]:
        """Those that gave other bits when they were repeated."""
        return [result for result in self.ran if settled([result]) is False]

    @property
    def as_laid_out(self) -> list[ConditionResult]:
        """Those whose tensors lie, and whose calls are enqueued, as in validation."""
        return [each for each in self.ran if each.condition.as_laid_out]

    @property
    def as_validated(self) -> list[ConditionResult]:
        """Those in which only the recipe of the inputs was chosen."""
        return [r for r in self.ran if r.condition == Condition(label=r.condition.label, recipe=r.condition.recipe)]

    def on(self, *recipes: str) -> list[ConditionResult]:
        return [each for each in self.ran if each.condition.recipe in recipes]

    def beside(self, *recipes: str) -> list[ConditionResult]:
        """Return those on all other recipes."""
        return [each for each in self.ran if each.condition.recipe not in recipes]

    @property
    def upcast(self) -> list[ConditionResult]:
        """Those on the same numbers in a wider type."""
        return [each for each in self.ran if each.condition.dtype]

    @property
    def right_when_upcast(self) -> bool:
        return bool(self.upcast) and all(map(passes, self.upcast))


def settled(results: Iterable[ConditionResult]) -> bool | None:
    """Return whether each condition gives the same bits each time; None where nothing was done twice.

    Where every output is NaN, the bits of that NaN say nothing."""
    counted = [result for result in results if not result.runs or result.nonfinite < result.runs]
    repeated = [trial for result in counted for trial in result.output_sha256 if len(trial) > 1]
    return all(len(set(trial)) == 1 for trial in repeated) if repeated else None


def settles(results: Iterable[ConditionResult]) -> bool:
    """Return whether of each trial's repeats only the first differs, in some trial: what an earlier call left decides,
    not chance. Other bits within the rule do not count."""
    results = list(results)
    if not any(map(fails, results)):
        return False
    trials = [trial for result in results for trial in result.output_sha256 if len(trial) >= thresholds.FEWEST_REPEATS]
    later = all(len(set(trial[1:])) == 1 for trial in trials)
    return bool(trials) and later and any(trial[0] != trial[1] for trial in trials)


# -- one thing that was varied within one environment ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Outputs under conditions that differ in one thing only: how memory was filled, or what was called before.

    `settled`: all repeats under the same condition gave the same bits; None: nothing was repeated. `state`: what the
    outputs of each trial follow. `marked`: NaN came out exactly where NaN was put in. `wavers`: the kernel is not
    deterministic anyway: other bits say nothing, and results outside of the rule do. `crashed`: the patterns under
    which its process ended.
    """

    site: str
    environment: str
    path: str
    results: tuple[ConditionResult, ...]
    settled: bool | None
    state: Follows
    systematic: bool
    marked: bool
    wavers: bool
    crashed: frozenset[str] = frozenset()

    @property
    def moves(self) -> bool:
        return self.state is Follows.FACTOR

    @property
    def crashes_on_large(self) -> bool:
        """Whether its process ended on both patterns of large numbers, and went on with zeros."""
        return {"max", "random"} <= self.crashed and any(each.condition.pattern == "zero" for each in self.results)

    @property
    def follows(self) -> bool:
        """Whether outputs follow what was varied, and nothing else explains that."""
        if self.site == "around" and self.crashes_on_large:
            return True
        counts = self.fails or not self.wavers
        return (self.moves and self.systematic and self.settled is not False and counts) or self.marked

    @property
    def clean(self) -> bool:
        """Whether nothing came of what was varied."""
        return not self.marked and (self.state is Follows.NEITHER or (self.wavers and not self.fails))

    @property
    def fails(self) -> bool:
        return any(map(fails, self.results))


def followed(results: Sequence[ConditionResult], factor: Varied, least: float = 0.0) -> Follows:
    """Return what outputs follow: the condition, where it changes them in any trial, and in at least this share."""
    by_inputs: dict[str, list[Trial]] = {}
    for number, result in enumerate(results):
        for trial, outputs in enumerate(result.output_sha256):
            inputs = result.input_sha256[trial] if trial < len(result.input_sha256) else ""
            home = f"{trial} {inputs}"
            if len(set(outputs)) == 1:
                of = Trial(factor=factor, level=str(number), home=home, outcome=outputs[0])
                by_inputs.setdefault(home, []).append(of)
    states = [state for trials in by_inputs.values() if (state := follows(trials)) is not Follows.UNKNOWN]
    changed = states.count(Follows.FACTOR)
    if not states:
        return Follows.UNKNOWN
    return Follows.FACTOR if changed and changed >= least * len(states) else Follows.NEITHER


def _marked(results: Sequence[ConditionResult]) -> bool:
    """Return whether NaN came in every run under NaN and in none under zero: it can have come from nowhere else."""
    by_pattern = {result.condition.pattern: result for result in results}
    under, without = by_pattern.get("nan"), by_pattern.get("zero")
    return bool(under and without and under.runs and under.nonfinite == under.runs and not without.nonfinite)


def spreads(experiments: Iterable[Conditions], factor: Varied, wavers: bool = False) -> list[Spread]:
    """Of each environment, and of each site that was filled: results that differ in one thing only."""
    made = []
    filling = factor is Varied.FILLING
    varied = "pattern" if filling else "before"
    for conditions in experiments:
        groups: dict[tuple[str, ...], list[ConditionResult]] = {}
        for result in conditions.record.results:
            if not filling or (result.condition.pattern and result.condition.site):
                alike = {**vars(result.condition), "label": "", varied: ""}.values()
                groups.setdefault(tuple(map(str, alike)), []).append(result)
        for group in groups.values():
            results = [result for result in group if result.status in protocol.RAN]
            crashed = {r.condition.pattern for r in group if filling and r.status == protocol.CRASHED}
            if len({getattr(result.condition, varied) for result in results} | crashed) < 2 or not results:
                continue
            systematic = followed(results, factor, thresholds.SYSTEMATIC) is Follows.FACTOR
            made.append(
                Spread(
                    site=results[0].condition.site,
                    environment=conditions.environment,
                    path=conditions.path,
                    results=tuple(results),
                    settled=settled([each for each in results if each.condition.pattern in CONSTANT] or results),
                    state=followed(results, factor),
                    systematic=not filling or systematic,
                    marked=_marked(results),
                    wavers=wavers,
                    crashed=frozenset(crashed),
                )
            )
    return made


# -- sequences of calls -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CallOrder:
    """The same sequence of calls in two fresh processes or more. Where they agree call by call, the calls before
    decide what differs within. Where each process repeats itself and no two agree, something is drawn, or met, once
    for each process.

    `wrong_later`: wrong outputs on the first call's inputs where other calls came before, each seen more than once.
    """

    environment: str
    recipe: str
    path: str
    sequences: tuple[ConditionResult, ...]
    wrong_later: frozenset[str] = frozenset()

    @property
    def _calls(self) -> list[list[str]]:
        return [[digest for trial in each.output_sha256 for digest in trial] for each in self.sequences]

    @property
    def agree(self) -> bool:
        """Whether the first calls of all processes gave the same bits."""
        return len({calls[0] for calls in self._calls}) == 1

    @property
    def first_right(self) -> bool:
        return all(each.within and each.within[0] and each.within[0][0] for each in self.sequences)

    @property
    def fails(self) -> bool:
        return any(map(fails, self.sequences))

    @property
    def differs_within(self) -> bool:
        """Whether a repeated call gives other bits than the first on the same inputs."""
        return settled(self.sequences) is False

    @property
    def remembers(self) -> bool:
        """Whether it is deterministic, and no function of the inputs: a repeated call gives other bits, or the very
        first call is right, and the same call after others is wrong. Other bits within rounding do not count."""
        shortest = min(len(calls) for calls in self._calls)
        replays = len({tuple(calls[:shortest]) for calls in self._calls}) == 1
        if not replays or not (self.fails or self.wrong_later):
            return False
        return self.differs_within or (self.first_right and bool(self.wrong_later))

    @property
    def drawn(self) -> bool:
        """Whether each process repeats itself, and on no inputs two of them agree."""
        if settled(self.sequences) is not True or any(each.nonfinite for each in self.sequences):
            return False
        firsts = ([trial[0] for trial in each.output_sha256] for each in self.sequences)
        trials = [set(outputs) for outputs in zip(*firsts, strict=False)]
        return bool(trials) and all(len(outputs) == len(self.sequences) for outputs in trials)


def call_orders(sequences: Iterable[Conditions], others: Iterable[Conditions]) -> list[CallOrder]:
    """Of each environment and recipe whose sequence ran in two processes."""
    wrong, made = _wrong_later(others), []
    for conditions in sequences:
        by_recipe: dict[str, list[ConditionResult]] = {}
        for result in conditions.ran:
            if result.output_sha256 and result.input_sha256:
                by_recipe.setdefault(result.condition.recipe, []).append(result)
        for recipe, results in by_recipe.items():
            if len(results) > 1:
                place = conditions.environment, recipe, results[0].input_sha256[0]
                made.append(
                    CallOrder(
                        environment=conditions.environment,
                        recipe=recipe,
                        path=conditions.path,
                        sequences=tuple(results),
                        wrong_later=frozenset(wrong.get(place, ())),
                    )
                )
    return made


def _wrong_later(others: Iterable[Conditions]) -> dict[tuple[str, str, str], set[str]]:
    """Return wrong outputs that were given twice on the same inputs, which lay as in validation, by processes that had
    made other calls before: by environment, recipe and inputs."""
    wrong: dict[tuple[str, str, str], set[str]] = {}
    for conditions in others:
        for result in conditions.as_laid_out:
            condition = result.condition
            if condition.site or condition.before == "fresh":
                continue
            for inputs, outputs, within in zip(result.input_sha256, result.output_sha256, result.within, strict=False):
                if len(outputs) > 1 and len(set(outputs)) == 1 and not any(within):
                    wrong.setdefault((conditions.environment, condition.recipe, inputs), set()).add(outputs[0])
    return wrong


# -- other sizes ------------------------------------------------------------------------------------------

SIZE_NAMES = {
    LENGTH: "sequence length",
    "heads": "number of heads",
    "batch": "batch size",
    "head_dim": "head dimension",
}
MOST_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class LengthTrials:
    """One kernel in one environment, on inputs of other sizes."""

    conditions: Conditions
    own: Sizes

    @cached_property
    def points(self) -> list[Point]:
        return points_of(self.conditions.record.results, self.own)

    @cached_property
    def _of_length(self) -> list[Point]:
        return [each for each in self.points if set(each.varies(self.own)) <= {LENGTH}]

    @cached_property
    def right(self) -> list[int]:
        return sorted({each.sizes[LENGTH] for each in self._of_length if each.right})

    @cached_property
    def wrong(self) -> list[int]:
        return sorted({each.sizes[LENGTH] for each in self._of_length if each.right is False} - set(self.right))

    @cached_property
    def smallest(self) -> Sizes | None:
        """The smallest input that was found to be wrong."""
        return smallest(self.points, self.own)


def sizes_text(lengths: LengthTrials) -> str:
    """Return the sequence lengths at which it fails, and of how many that were tried."""
    right, wrong = lengths.right, lengths.wrong
    crashed = {point.crashed for point in lengths.points if point.right is False}
    how = "crashes" if crashed == {True} else "wrong, or crashes," if True in crashed else "wrong"
    if not right:
        return f"{how} at every length tried ({len(wrong)})"
    left = len(wrong) - MOST_LISTED
    more = f" and {left} more" if left > 0 else ""
    listed = ", ".join(map(str, wrong[:MOST_LISTED])) or "no length of the workload's other sizes"
    return f"{how} at {listed}{more}; right at {len(right)} of {len(right) + len(wrong)} lengths tried"


def reproduced_at(lengths: LengthTrials) -> str:
    """Return the smallest sizes that fail: the length always, of the others what is not the workload's own."""
    sizes = reversed([*(lengths.smallest or {}).items()])
    return ", ".join(f"{SIZE_NAMES[name]} {n}" for name, n in sizes if name == LENGTH or n != lengths.own[name])


# -- checkers ---------------------------------------------------------------------------------------------

Checkers = tuple[CheckersRecord, str]  # and where it stands


@dataclass(frozen=True, kw_only=True)
class Detection:
    """What one checker reported, in one environment."""

    environment: str
    result: CheckerResult
    finding: CheckerFinding
    path: str

    @property
    def proven(self) -> bool:
        """The same checker found the fault that was planted for it in the same session."""
        return self.result.control_found is True


TOOLS = {"out_of_bounds": ("memcheck", "address"), "race": ("racecheck", "thread"), "uninitialised": ("initcheck",)}


def findings(checkers: Iterable[Checkers], kind: str) -> list[Detection]:
    return [
        Detection(environment=record.environment, result=result, finding=finding, path=path)
        for record, path in checkers
        for result in record.results
        for finding in result.findings
        if finding.kind == kind
    ]


def silent(checkers: Iterable[Checkers], kind: str) -> tuple[CheckerResult, str] | None:
    """Return a tool that looks for this, that proved it can find it, and that found nothing of the kind."""
    for record, path in checkers:
        for result in record.results:
            able = result.tool in TOOLS[kind] and result.control_found and result.status == "ok"
            if able and not any(finding.kind == kind for finding in result.findings):
                return result, path
    return None
