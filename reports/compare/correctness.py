"""Correctness of one target in one environment, and its verdict against the same in the baseline. Pure.

The deciding rule is applied to the float64 truth where there is one, otherwise to the first other target of the
record. Trials are seeded and their inputs are the same bytes everywhere: of what gives the same bits when it runs
again, on both sides, "passes all, then does not" is a fact and needs no test. All else that fails on one side or on
both is a rate, and compared as one (Fisher's exact test). Where both sides pass, their errors are compared
(`harness.stats.outputs`). A row has one p at most, and the false-discovery rate is controlled over all rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from scipy import stats

from harness.schema.records import (
    Agreement,
    Outcome,
    OutputResult,
    RecipeResult,
    TargetResult,
    ValidationRecord,
    Worst,
)
from harness.schema.run_records import Cell
from harness.stats.outputs import Errors, errors_moved, rates_differ
from harness.worker import protocol
from reports import model
from reports.compare import properties
from reports.compare.meaning import evidence_text
from reports.compare.outputs import other_types
from reports.load.evidence import Evidence, unblamed
from reports.model import Bits, Correctness, CorrectnessSide, MeaningChange, OutputSide, Rate, RecipeSide
from reports.sentences import sentence

FAILED = frozenset({"build_failed", "crashed", "timed_out", "killed", "broken"})
OFF_STREAM = "its calls put their work on another stream than the one they were given"


@lru_cache(maxsize=4096)
def pass_interval(passed: int, trials: int, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson interval of a share (exact; Clopper and Pearson 1934)."""
    interval = stats.binomtest(passed, trials).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def target_of(recipe: RecipeResult, target: str) -> TargetResult | None:
    return next((result for result in recipe.targets if result.target == target), None)


def deciding(result: TargetResult) -> Agreement | None:
    """Against the truth where there is one."""
    truth = [agreement for agreement in result.against if agreement.against == protocol.TRUTH]
    return next(iter(truth or result.against), None)


def rule_of(record: ValidationRecord, agreement: Agreement) -> str:
    """The deciding rule; without a truth the rounding rule cannot be applied, and KernelBench's is."""
    if record.decides in agreement.passed:
        return record.decides
    return next((rule for rule in ("kernelbench", "strict") if rule in agreement.passed), record.decides)


def _rates(results: Iterable[tuple[RecipeResult, TargetResult]], confidence: float) -> dict[tuple[str, str], Rate]:
    """By what outputs were held against and by the rule, over all of these recipes."""
    passed: Counter[tuple[str, str]] = Counter()
    trials: Counter[tuple[str, str]] = Counter()
    for recipe, result in results:
        for agreement in result.against:
            for rule, count in agreement.passed.items():
                passed[agreement.against, rule] += count
                trials[agreement.against, rule] += recipe.trials
    rates = {}
    for (against, rule), of in trials.items():
        count = passed[against, rule]
        if of > 0 and 0 <= count <= of:
            low, high = pass_interval(count, of, confidence)
            rates[against, rule] = Rate(passed=count, trials=of, low=low, high=high, rule=rule, against=against)
    return rates


def _largest(of: Iterable[object], name: str) -> float | None:
    """Return the largest value of a field, over those that have one."""
    return max((value for each in of if (value := getattr(each, name)) is not None), default=None)


def side(evidence: Evidence, cell: Cell, target: str) -> CorrectnessSide:
    """`target` is `kernel` or a reference's name; the cell's kernel is the one whose record has it."""
    is_kernel = target == protocol.KERNEL
    record = evidence.outcome(cell, built=is_kernel)
    if not isinstance(record, ValidationRecord):
        build = evidence.builds.get((cell.environment, cell.kernel, cell.device)) if is_kernel else None
        unloaded = build is not None and build.refused is not None
        return CorrectnessSide(environment=cell.environment, unloaded=unloaded, **vars(record))
    found = list(_results(record, target))
    results = [result for _, result in found]
    rates = _rates(found, evidence.confidence)
    judged = [main for result in results if (main := deciding(result))]
    rule = rule_of(record, judged[0]) if judged else record.decides
    rate = rates.get((judged[0].against, rule)) if judged else None
    is_subject = is_kernel or cell.kernel in evidence.run.pytorch
    outcome = unblamed(record if is_subject else _of_reference(record, rate, results)).ended()
    if not is_subject:
        outcome = replace(outcome, ended_after_s=None)
    precision = record.precision if is_kernel else record.reference_precision
    return CorrectnessSide(
        environment=cell.environment,
        **vars(outcome),
        **_summed(results, judged),
        record=evidence.validation_pointer(record),
        measured_with=None if is_kernel else cell.kernel,
        decides=rule,
        rate=rate,
        agreement=_agreements(rates, record, judged),
        writes=tuple(dict.fromkeys(name for result in results for name in result.writes)),
        off_stream=is_kernel and bool(evidence.escaping(cell)),
        operators=sorted({operator for result in results for operator in result.operators}),
        unseen=properties.undetected_text(record),
        precision=properties.precision_text(next((each.precision for each in results if each.precision), precision)),
        choice=record.choice if is_kernel else "",
        recipes=[_recipe_side(recipe, result, evidence.confidence, record) for recipe, result in found],
        outputs=[_output_side(recipe, output, record) for recipe, result in found for output in result.outputs],
    )


def _summed(results: list[TargetResult], judged: list[Agreement]) -> dict[str, Any]:
    """Return counts over all recipes, and the largest errors."""
    counts = ("repeats_differ", "inputs_mutated", "unwritten_trials", "leaves_range")
    return {
        **{name: sum(getattr(result, name) for result in results) for name in counts},
        **{name: _largest(results, name) for name in ("repeats_max_units", "repeats_max_abs")},
        **{name: _largest(judged, name) for name in ("max_abs", "max_units")},
        "nonfinite_trials": sum(agreement.nonfinite_trials for agreement in judged),
    }


def _agreements(
    rates: Mapping[tuple[str, str], Rate], record: ValidationRecord, judged: list[Agreement]
) -> dict[str, Rate]:
    """Return the agreement with each reference: there is no rounding unit, and the dtype's own tolerance is the milder
    of the other two rules."""
    milder = "strict" if record.decides == "strict" else "kernelbench"
    against = [name for name, rule in rates if rule == milder and judged and name != judged[0].against]
    return {name: rates[name, milder] for name in against}


def _output_side(recipe: RecipeResult, output: OutputResult, record: ValidationRecord) -> OutputSide:
    return OutputSide(
        name=output.name,
        dtype=output.dtype,
        shape=tuple(output.shape),
        layout=output.layout,
        max_units=output.truth.max_units if output.truth else None,
        sha256=tuple(output.output_sha256),
        wrong=output.truth is not None and output.truth.passed.get(record.decides) != recipe.trials,
    )


def _recipe_side(recipe: RecipeResult, result: TargetResult, confidence: float, record: ValidationRecord) -> RecipeSide:
    main = deciding(result)
    worst = sentence("correctness", "worst", main.worst) if main is not None and main.worst is not None else ""
    return RecipeSide(
        recipe=recipe.recipe,
        trials=recipe.trials,
        status=result.status,
        message=result.message,
        rates=list(_rates([(recipe, result)], confidence).values()),
        max_abs=main.max_abs if main else None,
        max_units=main.max_units if main else None,
        worst=worst,
        failing=_failing(main, recipe.trials, record, worst) if main else "",
    )


def _failing(main: Agreement, trials: int, record: ValidationRecord, worst: str) -> str:
    """The worst element of all trials, if its own trial fails: of a trial that passes it shows nothing. Else the trial
    that fails by most, by units of rounding; no other rule's trials are recorded one by one."""
    rule = rule_of(record, main)
    limit, passed = record.limits.get(rule), main.passed.get(rule, 0)
    if passed >= trials or limit is None:
        return ""
    units = main.units_per_trial if rule == "rounding" else []
    failed = {number for number, each in enumerate(units) if each is None or not each <= limit}
    if main.worst is not None and (not passed or main.worst.trial in failed or _beyond(main.worst, rule, limit)):
        return worst
    return f"trial {max(failed, key=lambda number: units[number] or math.inf)}" if failed else ""


def _beyond(worst: Worst, rule: str, limit: float) -> bool:
    """Whether this element alone fails a rule that is one of elements."""
    if rule == "rounding":
        return False
    got, want = worst.got, worst.want
    return got is None or want is None or not abs(got - want) <= limit + limit * abs(want)


def _of_reference(record: ValidationRecord, rate: Rate | None, results: list[TargetResult]) -> Outcome:
    """A kernel's outcome is its record's; a reference's follows from its own results."""
    worst = next((result for result in results if result.status not in ("ok", "wrong")), None)
    if worst is not None:
        return worst
    if not results:
        status = record.status if record.status in FAILED else "not_run"
        return Outcome(status=status, message=record.message or "it was not validated here", fault=record.fault)
    if rate is None:
        return Outcome(status="not_run", message="its outputs were not compared with anything")
    return Outcome(status="ok" if rate.passed == rate.trials else "wrong")


def compare_bits(base: ValidationRecord | None, this: ValidationRecord | None, target: str) -> Bits:
    """Digests of outputs, trial by trial, where both sides had the same input bytes."""
    unsteady = max(sum(result.repeats_differ for _, result in _results(each, target)) for each in (base, this))
    others = {recipe.recipe: (recipe, result) for recipe, result in _results(this, target)}
    trials: list[tuple[str, str, str, str]] = []
    for recipe, result in _results(base, target):
        if recipe.recipe in others:
            other, its = others[recipe.recipe]
            trials += zip(
                recipe.input_sha256, other.input_sha256, result.output_sha256, its.output_sha256, strict=False
            )
    same = [left == right for one, two, left, right in trials if one == two]
    differ = len(trials) - len(same)
    return Bits(compared=len(same), identical=sum(same), inputs_differ=differ, unsteady=unsteady)


def fisher_p(base: CorrectnessSide, this: CorrectnessSide) -> float | None:
    """None where nothing fails, where what is wrong is no rate, and where both sides repeat their bits and one of them
    passes all: that needs no test."""
    statuses = {base.status, this.status}
    if "wrong" not in statuses or not statuses <= {"ok", "wrong"} or base.rate is None or this.rate is None:
        return None
    if len(statuses) == 2:
        wrong = this.rate if this.status == "wrong" else base.rate
        if wrong.passed == wrong.trials or not (base.repeats_differ or this.repeats_differ):
            return None
    return rates_differ(this.rate.passed, this.rate.trials, base.rate.passed, base.rate.trials)


def compare_errors(
    base: ValidationRecord | None, this: ValidationRecord | None, target: str
) -> tuple[Errors | None, float | None]:
    """As `harness.stats.outputs.errors_moved`; of sides that both pass."""
    return errors_moved(_results(base, target), _results(this, target))


def _results(record: ValidationRecord | None, target: str) -> Iterator[tuple[RecipeResult, TargetResult]]:
    for recipe in record.recipes if record else []:
        result = target_of(recipe, target)
        if result is not None:
            yield recipe, result


@dataclass(frozen=True, kw_only=True)
class OutputsSeen:
    """What two environments' outputs are judged by. `errors`: what changed where both pass; `meaning`: how the float64
    results of the versions differ; `draws`: whether a model draws other numbers from the same seed."""

    base: CorrectnessSide
    this: CorrectnessSide
    bits: Bits
    errors: Errors | None = None
    p_value: float | None = None
    meaning: MeaningChange | None = None
    draws: bool = False


def judge(seen: OutputsSeen, q_value: float | None, level: float, names: Mapping[str, str]) -> Correctness:
    """Return the verdict of one row. `level`: the false-discovery rate; `names`: of environments, for sentences."""
    base, this = seen.base, seen.this
    versions = names[base.environment], names[this.environment]
    changed = seen.meaning is not None or seen.draws
    if seen.meaning is not None:
        verdict, base, this = _judge_meaning(seen, seen.meaning, versions)
    else:
        verdict = model.OTHER_DRAWS if seen.draws else find_verdict(seen, q_value, level)
    retyped = [] if changed else [each.text(*versions) for each in other_types(base, this)]
    if retyped and verdict == model.PASS:
        verdict = model.OTHER_TYPE
    plain = verdict
    if not changed and verdict in model.RIGHT and (base.off_stream or this.off_stream):
        verdict = model.FAILING if base.off_stream and this.off_stream else model.REGRESSED
        verdict = verdict if this.off_stream else model.FIXED
    why = sentence(
        "correctness",
        "why",
        seen,
        verdict,
        before=versions[0],
        here=versions[1],
        q_value=q_value,
        is_significant=q_value is not None and q_value <= level,
        failed=FAILED,
        is_off_stream=plain != verdict,
        off_stream=OFF_STREAM,
        retyped=retyped,
        is_right=plain in model.RIGHT,
    )
    return Correctness(
        verdict=verdict,
        why=why,
        baseline=base,
        this=this,
        bits=seen.bits,
        p_value=seen.p_value,
        q_value=q_value,
        meaning=seen.meaning,
    )


def _judge_meaning(
    seen: OutputsSeen, meaning: MeaningChange, versions: tuple[str, str]
) -> tuple[str, CorrectnessSide, CorrectnessSide]:
    """Judge two sides whose float64 results differ: neither is measured by the other's. Without evidence for one of
    them nobody is wrong, also where outputs differ from their own version's float64 result."""
    if meaning.by is None:
        return model.MEANING_CHANGED, _unjudged(seen.base), _unjudged(seen.this)
    is_base_right = meaning.right == seen.base.environment
    shown = evidence_text(meaning.by, versions[0] if is_base_right else versions[1])
    message = f"{meaning.output or 'the output'}: {shown}"
    if is_base_right:
        return model.REGRESSED, seen.base, replace(seen.this, status=protocol.WRONG, message=message)
    return model.FIXED, replace(seen.base, status=protocol.WRONG, message=message), seen.this


def _unjudged(side: CorrectnessSide) -> CorrectnessSide:
    if side.status != protocol.WRONG:
        return side
    return replace(side, status=protocol.UNDECIDABLE, message=f"it differs from its own float64 result: {side.message}")


def find_verdict(seen: OutputsSeen, q_value: float | None, level: float) -> str:
    """Return the verdict by how both sides ended, by their pass rates and by their errors."""
    before, now = seen.base.status, seen.this.status
    if now in FAILED:
        return model.BROKEN
    if now == "unsupported" and before == "unsupported":
        return model.UNSUPPORTED
    if now == "unsupported" and before in protocol.RAN:
        return model.NO_LONGER_SUPPORTED
    is_open = protocol.UNDECIDABLE in (before, now) and now != protocol.WRONG
    if is_open or now not in protocol.RAN or seen.base.contradicts_itself or seen.this.contradicts_itself:
        return model.UNDECIDED
    if before == "unsupported":
        return model.NEWLY_SUPPORTED if now == "ok" else model.FAILING
    if before in FAILED or before == "not_run":
        return model.UNDECIDED
    is_significant = q_value is not None and q_value <= level
    if now == before == "ok":
        if seen.errors is None or (q_value is not None and not is_significant):
            return model.PASS
        return model.LESS_EXACT if seen.errors.ratio > 1 else model.MORE_EXACT
    if now == before:
        return _judge_rates(seen.base.rate, seen.this.rate, is_significant)
    if q_value is not None and not is_significant:
        return model.UNDECIDED
    return model.FIXED if now == "ok" else model.REGRESSED


def _judge_rates(base: Rate | None, this: Rate | None, is_significant: bool) -> str:
    """Return the verdict of what is wrong on both sides."""
    if base is None or this is None:
        return model.FAILING if base is this else model.UNDECIDED
    if (base.passed, base.trials) == (this.passed, this.trials) or base.share == this.share == 1:
        return model.FAILING
    if not is_significant:
        return model.UNDECIDED
    return model.REGRESSED if this.share < base.share else model.FAILING
