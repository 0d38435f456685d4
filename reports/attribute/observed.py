"""What the experiments on one cell say, before anybody is blamed: outputs by poison, by predecessor, by repeat. Pure.

Outputs are compared by digest, trial by trial, and only where the inputs were the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.schema.experiment_records import (
    CheckerFinding,
    CheckerResult,
    CheckersRecord,
    ConditionResult,
    ConditionsRecord,
    SwapRecord,
    SwapResult,
)
from harness.worker import protocol
from reports.attribute import thresholds
from reports.attribute.messages import died

RAN = protocol.RAN
CONSTANT = ("zero", "nan", "max")  # `random` may be another pattern in each repeat


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """One experiment's record, and where it stands."""

    record: ConditionsRecord
    path: str

    @property
    def ran(self) -> list[ConditionResult]:
        return [result for result in self.record.results if result.status in RAN]

    @property
    def as_laid_out(self) -> list[ConditionResult]:
        """Those whose tensors lie, and whose calls are enqueued, as in validation."""
        return [each for each in self.ran if each.condition.as_laid_out]

    @property
    def right_when_wider(self) -> bool:
        """Whether it is right on the same numbers in a wider type, and that was tried."""
        wider = [each for each in self.ran if each.condition.dtype]
        return bool(wider) and all(each.runs and each.passed == each.runs for each in wider)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Outputs under conditions that differ in one thing alone. None: these records cannot tell.

    `settled`: all repeats under the same condition gave the same bits. `moves`: two conditions, each settled, gave
    other bits on the same inputs; `systematic`: so in most trials. `marked`: NaN came out exactly where NaN was put in.
    `wavers`: the kernel is not bit-repeatable anyway: other bits say nothing, and results outside of the rule do.
    """

    site: str
    environment: str
    path: str
    results: tuple[ConditionResult, ...]
    settled: bool | None
    moves: bool | None
    systematic: bool = True
    marked: bool = False
    wavers: bool = False

    @property
    def follows(self) -> bool:
        """Whether outputs follow what was varied, and nothing else explains that."""
        told = self.fails or not self.wavers
        return bool(self.moves and self.systematic and self.settled is not False and told) or self.marked

    @property
    def clean(self) -> bool:
        """Whether nothing came of what was varied."""
        return not self.marked and (self.moves is False or (self.wavers and not self.fails))

    @property
    def fails(self) -> bool:
        return any(result.passed < result.runs for result in self.results)


def settled(results: Iterable[ConditionResult]) -> bool | None:
    """Whether each condition gives the same bits each time; None where nothing was done twice.

    Where every output is NaN, which NaN it is says nothing."""
    told = [result for result in results if not result.runs or result.nonfinite < result.runs]
    repeated = [trial for result in told for trial in result.output_sha256 if len(trial) > 1]
    return all(len(set(trial)) == 1 for trial in repeated) if repeated else None


def settles(results: Iterable[ConditionResult]) -> bool:
    """Whether, in each trial that was run three times or more, all runs but the first give the same bits, and the first
    gives others in some: what an earlier call left decides, and not chance. Other bits within the rule do not count."""
    results = list(results)
    if not any(result.passed < result.runs for result in results):
        return False
    trials = [trial for result in results for trial in result.output_sha256 if len(trial) >= thresholds.FEWEST_REPEATS]
    later = all(len(set(trial[1:])) == 1 for trial in trials)
    return bool(trials) and later and any(trial[0] != trial[1] for trial in trials)


def moves(results: Sequence[ConditionResult], least: float = 0.0) -> bool | None:
    """Whether two conditions, each of which gives one output for a trial, give different ones: in any trial, and in
    at least this share of them."""
    by_inputs: dict[tuple[int, str], list[str]] = {}
    for result in results:
        for trial, outputs in enumerate(result.output_sha256):
            given = result.input_sha256[trial] if trial < len(result.input_sha256) else ""
            if len(set(outputs)) == 1:
                by_inputs.setdefault((trial, given), []).append(outputs[0])
    compared = [outputs for outputs in by_inputs.values() if len(outputs) > 1]
    moved = sum(len(set(outputs)) > 1 for outputs in compared)
    return moved > 0 and moved >= least * len(compared) if compared else None


def _marked(results: Sequence[ConditionResult]) -> bool:
    """NaN in every run under NaN, none under zero: it can have come from nowhere else."""
    by_pattern = {result.condition.pattern: result for result in results}
    under, without = by_pattern.get("nan"), by_pattern.get("zero")
    return bool(under and without and under.runs and under.nonfinite == under.runs and not without.nonfinite)


def poison(found: Iterable[Conditions], wavers: bool = False) -> list[Spread]:
    """Of each environment and site that was filled with at least two patterns."""
    spreads = []
    for conditions in found:
        for site, results in _alike(conditions.ran, "pattern"):
            if not site or len(results) < 2:
                continue
            constant = [result for result in results if result.condition.pattern in CONSTANT] or results
            spreads.append(
                Spread(
                    site=site,
                    environment=conditions.record.environment,
                    path=conditions.path,
                    results=tuple(results),
                    settled=settled(constant),
                    moves=moves(results),
                    systematic=bool(moves(results, thresholds.SYSTEMATIC)),
                    marked=_marked(results),
                    wavers=wavers,
                )
            )
    return spreads


def predecessors(found: Iterable[Conditions], wavers: bool = False) -> list[Spread]:
    """Of each environment: the kernel after each of at least two predecessors."""
    spreads = []
    for conditions in found:
        for _, results in _alike(conditions.ran, "before"):
            if len({result.condition.before for result in results}) < 2:
                continue
            spreads.append(
                Spread(
                    site="",
                    environment=conditions.record.environment,
                    path=conditions.path,
                    results=tuple(results),
                    settled=settled(results),
                    moves=moves(results),
                    wavers=wavers,
                )
            )
    return spreads


def _alike(results: Iterable[ConditionResult], varied: str) -> list[tuple[str, list[ConditionResult]]]:
    """Results whose conditions differ in `varied` alone, with the site they share."""
    groups: dict[tuple[str, ...], list[ConditionResult]] = {}
    for result in results:
        told = result.condition.model_dump(exclude={"label", varied})
        if varied == "pattern" and not result.condition.pattern:
            continue
        groups.setdefault(tuple(map(str, told.values())), []).append(result)
    return [(group[0].condition.site, group) for group in groups.values()]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one checker said, in one environment."""

    result: CheckerResult
    finding: CheckerFinding
    environment: str
    path: str

    @property
    def proven(self) -> bool:
        """The same checker found the fault that was planted for it in the same session."""
        return self.result.control_found is True


@dataclass(frozen=True, kw_only=True)
class Checkers:
    record: CheckersRecord
    path: str


TOOLS = {
    "out_of_bounds": ("memcheck", "address"),
    "race": ("racecheck", "thread"),
    "uninitialised": ("initcheck",),
}


def findings(found: Iterable[Checkers], kind: str) -> list[Finding]:
    return [
        Finding(result=result, finding=finding, environment=checkers.record.environment, path=checkers.path)
        for checkers in found
        for result in checkers.record.results
        for finding in result.findings
        if finding.kind == kind
    ]


def silent(found: Iterable[Checkers], kind: str) -> tuple[CheckerResult, str] | None:
    """A tool that looks for this, that proved it can find it, and that found nothing at all of the kind."""
    for checkers in found:
        for result in checkers.record.results:
            if (
                result.tool in TOOLS[kind]
                and result.control_found
                and result.status == "ok"
                and not any(finding.kind == kind for finding in result.findings)
            ):
                return result, checkers.path
    return None


Outcomes = str | float | tuple[str, ...] | None
OBJECT, PLACE, NEITHER, MIXED = "object", "place", "neither", "mixed"


@dataclass(frozen=True, kw_only=True)
class Swap:
    """Two environments' object code, each run in both. `follows`: what right and wrong go with, or that there are no
    outputs for the process died; where all four are right, or all wrong, the failure was not met and `follows` says
    NEITHER. None: not all ran, or all died. `bits`: the same of outputs, whether right or not."""

    record: SwapRecord
    path: str
    cells: dict[tuple[str, str], SwapResult]  # (code from, run in)
    follows: str | None
    bits: str | None


def swap_between(record: SwapRecord, path: str, base: str, this: str) -> Swap:
    cells = {
        (result.code_from, result.run_in): result
        for result in record.results
        if {result.code_from, result.run_in} <= {base, this} and (result.status in RAN or died(result))
    }
    ran = [cells.get(key) for key in ((base, base), (base, this), (this, base), (this, this))]
    follows, bits = (_follows([told(each) if each else None for each in ran]) for told in (_rightness, _outputs))
    return Swap(record=record, path=path, cells=cells, follows=follows, bits=bits)


def _follows(outcomes: Sequence[Outcomes]) -> str | None:
    """Of the baseline's code at home and away, then of the other's away and at home."""
    if None in outcomes or all(outcome == protocol.CRASHED for outcome in outcomes):
        return None
    home, carried, returned, away = outcomes
    if home == carried == returned == away:
        return NEITHER
    if home == carried and returned == away:
        return OBJECT
    if home == returned and carried == away:
        return PLACE
    return MIXED


def _rightness(result: SwapResult) -> Outcomes:
    """That it died, or the share of runs that were right: other bits within the rule explain no failure."""
    if died(result):
        return protocol.CRASHED
    return result.passed / result.runs if result.runs else None


def _outputs(result: SwapResult) -> Outcomes:
    return protocol.CRASHED if died(result) else tuple(result.output_sha256) or None
