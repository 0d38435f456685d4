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
from dataclasses import replace
from functools import lru_cache

from scipy import stats

from harness.schema.records import Agreement, Outcome, RecipeResult, TargetResult, ValidationRecord, Worst
from harness.schema.run_records import Cell
from harness.stats.outputs import Errors, errors_moved, rates_differ
from harness.worker import protocol
from harness.worker.protocol import Fault
from reports import model
from reports.compare import properties
from reports.compare.meaning import evidence_text, meaning_text
from reports.compare.outputs import other_types
from reports.load.evidence import Evidence, unblamed
from reports.model import Bits, Correctness, CorrectnessSide, MeaningChange, OutputSide, Rate, RecipeSide
from reports.text import NONFINITE, number, words

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


def _largest(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def side(evidence: Evidence, cell: Cell, target: str) -> CorrectnessSide:
    """`target` is `kernel` or a reference's name; the cell's kernel is the one whose record has it."""
    is_kernel = target == protocol.KERNEL
    record = evidence.outcome(cell, built=is_kernel)
    if not isinstance(record, ValidationRecord):
        build = evidence.builds.get((cell.environment, cell.kernel, cell.device)) if is_kernel else None
        unloaded = build is not None and build.refused is not None
        return CorrectnessSide(environment=cell.environment, unloaded=unloaded, **vars(record))
    results = list(_results(record, target))
    rates = _rates(results, evidence.confidence)
    judged = [main for _, result in results if (main := deciding(result))]
    rule = rule_of(record, judged[0]) if judged else record.decides
    rate = rates.get((judged[0].against, rule)) if judged else None
    precision = record.precision if is_kernel else record.reference_precision
    precision = next((result.precision for _, result in results if result.precision), precision)
    is_subject = is_kernel or cell.kernel in evidence.run.pytorch
    outcome = unblamed(record if is_subject else _of_reference(record, rate, [result for _, result in results]))
    # Against a reference there is no unit of rounding; the dtype's own tolerance is the milder of the other two.
    milder = "strict" if record.decides == "strict" else "kernelbench"
    return CorrectnessSide(
        environment=cell.environment,
        status=outcome.status,
        message=outcome.message,
        log_excerpt=outcome.log_excerpt,
        fault=outcome.fault,
        failure=outcome.failure,
        ended_after_s=record.ended_after_s if is_subject else None,
        record=evidence.validation_pointer(record),
        measured_with=None if is_kernel else cell.kernel,
        decides=rule,
        rate=rate,
        agreement={
            against: value
            for (against, by), value in rates.items()
            if judged and against != judged[0].against and by == milder
        },
        max_abs=_largest([agreement.max_abs for agreement in judged]),
        max_units=_largest([agreement.max_units for agreement in judged]),
        nonfinite_trials=sum(agreement.nonfinite_trials for agreement in judged),
        repeats_differ=sum(result.repeats_differ for _, result in results),
        repeats_max_units=_largest([result.repeats_max_units for _, result in results]),
        repeats_max_abs=_largest([result.repeats_max_abs for _, result in results]),
        inputs_mutated=sum(result.inputs_mutated for _, result in results),
        unwritten_trials=sum(result.unwritten_trials for _, result in results),
        leaves_range=sum(result.leaves_range for _, result in results),
        writes=tuple(dict.fromkeys(name for _, result in results for name in result.writes)),
        off_stream=is_kernel and bool(evidence.escaping(cell)),
        operators=sorted({operator for _, result in results for operator in result.operators}),
        unseen=properties.undetected_text(record),
        precision=properties.precision_text(precision),
        choice=record.choice if is_kernel else "",
        recipes=[_recipe_side(recipe, result, evidence.confidence, record) for recipe, result in results],
        outputs=[
            OutputSide(
                name=output.name,
                dtype=output.dtype,
                shape=tuple(output.shape),
                layout=output.layout,
                max_units=output.truth.max_units if output.truth else None,
                sha256=tuple(output.output_sha256),
                wrong=output.truth is not None and output.truth.passed.get(record.decides) != recipe.trials,
            )
            for recipe, result in results
            for output in result.outputs
        ],
    )


def _recipe_side(recipe: RecipeResult, result: TargetResult, confidence: float, record: ValidationRecord) -> RecipeSide:
    main, worst = deciding(result), ""
    if main is not None and main.worst is not None:
        place = ", ".join(map(str, main.worst.index))
        got, want = (NONFINITE if value is None else number(value, 6) for value in (main.worst.got, main.worst.want))
        worst = f"trial {main.worst.trial}, element [{place}]: got {got}, want {want}"
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


def passes(rate: Rate | None) -> str:
    return f"{rate.passed} of {rate.trials} trials pass" if rate else "no pass rate recorded"


def _contradiction(side: CorrectnessSide) -> str:
    if side.status == "ok" and side.rate is not None and side.rate.passed < side.rate.trials:
        return f"its record says ok, yet {passes(side.rate)}"
    return ""


def changed_meaning(
    base: CorrectnessSide, this: CorrectnessSide, bits: Bits, meaning: MeaningChange, names: Mapping[str, str]
) -> Correctness:
    """Judge two sides whose float64 results differ: neither is measured by the other's. Without evidence for one of
    them nobody is wrong, also where outputs differ from their own version's float64 result."""
    before, here = names[base.environment], names[this.environment]
    why = f"the versions compute different things: {meaning_text(meaning, before, here)}"
    if meaning.by is None:
        said = [why, "nothing in this run shows which of them is right"]
        for side_, name in ((base, before), (this, here)):
            if side_.status == protocol.WRONG:
                said.append(f"{passes(side_.rate)} in {name}, against its own float64 result")
        return Correctness(
            verdict=model.MEANING_CHANGED,
            why="; ".join(said),
            baseline=_unjudged(base),
            this=_unjudged(this),
            bits=bits,
            meaning=meaning,
        )
    word = model.REGRESSED if meaning.right == base.environment else model.FIXED
    wrong = this if word == model.REGRESSED else base
    shown = evidence_text(meaning.by, names[meaning.right])
    wrong = replace(wrong, status=protocol.WRONG, message=f"{meaning.output or 'the output'}: {shown}")
    base, this = (base, wrong) if word == model.REGRESSED else (wrong, this)
    return Correctness(verdict=word, why=f"{why}; {shown}", baseline=base, this=this, bits=bits, meaning=meaning)


def _unjudged(side: CorrectnessSide) -> CorrectnessSide:
    if side.status != protocol.WRONG:
        return side
    return replace(side, status=protocol.UNDECIDABLE, message=f"it differs from its own float64 result: {side.message}")


def verdict(
    base: CorrectnessSide,
    this: CorrectnessSide,
    bits: Bits,
    errors: Errors | None,
    p: float | None,
    q: float | None,
    level: float,
    names: Mapping[str, str],
    meaning: MeaningChange | None = None,
    draws: bool = False,
) -> Correctness:
    """`names`: of environments, for sentences. `meaning`: how their float64 results differ; `draws`: whether the model
    draws other numbers from the same seed."""
    before, here = versions = names[base.environment], names[this.environment]
    if meaning is not None:
        return changed_meaning(base, this, bits, meaning, names)
    if draws:
        why = f"it draws other numbers from the same seed in {here} than in {before}, and the same ones in each call"
        return Correctness(verdict=model.OTHER_DRAWS, why=why, baseline=base, this=this, bits=bits)
    word, why = _verdict(base, this, errors, q, level, versions)
    if retyped := [each.text(before, here) for each in other_types(base, this)]:
        word, why = model.OTHER_TYPE if word == model.PASS else word, f"{why}; {', '.join(retyped)}"
    if word in model.RIGHT and base.off_stream and this.off_stream:
        word, why = model.FAILING, f"wrong in both: {OFF_STREAM}; {why}"
    elif word in model.RIGHT and this.off_stream:
        word, why = model.REGRESSED, f"wrong in {here}: {OFF_STREAM}; {why}"
    elif word in model.RIGHT and base.off_stream:
        word, why = model.FIXED, f"wrong in {before}, and not in {here}: {OFF_STREAM}; {why}"
    unsteady = max(base.repeats_differ, this.repeats_differ)
    if unsteady and word not in (*model.RIGHT, model.UNSUPPORTED):
        why += f"; a second run gave other bits in {unsteady} trials, so chance plays a part"
    return Correctness(verdict=word, why=why, baseline=base, this=this, bits=bits, p_value=p, q_value=q)


def _verdict(
    base: CorrectnessSide,
    this: CorrectnessSide,
    errors: Errors | None,
    q: float | None,
    level: float,
    versions: tuple[str, str],
) -> tuple[str, str]:
    now, before = this.status, base.status
    then, here = versions
    message = this.message or words(now)
    if now in FAILED:
        also = f"; {then} fails too" if before in FAILED else ""
        return model.BROKEN, f"{words(now)}: {message}{also}"
    if now == "not_run":
        return model.UNDECIDED, f"{'not run' if this.fault is Fault.SUBJECT else 'skipped'}: {message}"
    if now == "unsupported":
        if before == "unsupported":
            return model.UNSUPPORTED, f"refused in both: {message}"
        if before in protocol.RAN:
            return model.NO_LONGER_SUPPORTED, f"refused in {here}: {message}"
        return model.UNDECIDED, f"refused in {here}, and {then} has no result ({base.message or before})"
    if now == protocol.UNDECIDABLE or (before == protocol.UNDECIDABLE and now != "wrong"):
        return model.UNDECIDED, f"it passes: {message if now == protocol.UNDECIDABLE else base.message}"
    for side_, name in ((this, here), (base, then)):
        if problem := _contradiction(side_):
            return model.UNDECIDED, f"{name}: {problem}"
    found = f"{passes(this.rate)} in {here}"
    if before == "unsupported":
        return model.NEWLY_SUPPORTED if now == "ok" else model.FAILING, f"refused in {then}; {found}"
    if before in FAILED or before == "not_run":
        reason = base.message or words(before)
        return model.UNDECIDED, f"{then} has no result ({reason}); {found}"
    change = f"{passes(base.rate)} in {then}, {found}"
    if now == before == "ok":
        return _both_right(errors, q, level, found if then == here else f"{found}, as in {then}")
    if before == now:
        return _both_wrong(base, this, q, level, change, here)
    word = model.FIXED if now == "ok" else model.REGRESSED
    if q is None:
        return word, change
    why = f"{change} (Fisher q = {q:.2g})"
    return (word, why) if q <= level else (model.UNDECIDED, f"{why}: chance alone could do this")


def _both_right(errors: Errors | None, q: float | None, level: float, found: str) -> tuple[str, str]:
    if errors is None or (q is not None and q > level):
        return model.PASS, found
    word = model.LESS_EXACT if errors.ratio > 1 else model.MORE_EXACT
    sure = "on every trial" if errors.p_value is None else f"q = {q:.2g}"
    unit = " rounding units" if errors.what == "largest" else ""
    return word, (
        f"{found}; {errors.what} error {errors.ratio:.3g} times as large on "
        f"{words(errors.recipe)} inputs, {errors.base:.3g} to {errors.this:.3g}{unit} "
        f"({errors.pairs} trials, {sure})"
    )


def _both_wrong(
    base: CorrectnessSide, this: CorrectnessSide, q: float | None, level: float, change: str, here: str
) -> tuple[str, str]:
    if base.rate is None and this.rate is None:
        return model.FAILING, f"wrong in both: {this.message or base.message or 'no pass rate recorded'}"
    if base.rate is None or this.rate is None:
        return model.UNDECIDED, f"wrong in both; {change}"
    if base.rate.share == this.rate.share == 1:
        return model.FAILING, f"wrong in both, although every trial passes: {this.message or base.message}"
    if base.rate.passed == this.rate.passed and base.rate.trials == this.rate.trials:
        return model.FAILING, f"wrong in both: {passes(this.rate)} in each"
    if q is not None and q <= level:
        if this.rate.share < base.rate.share:
            return model.REGRESSED, f"wrong in both, and more often in {here}: {change} (Fisher q = {q:.2g})"
        return model.FAILING, f"wrong in both, less often in {here}: {change} (Fisher q = {q:.2g})"
    return model.UNDECIDED, f"wrong in both; not enough evidence that it is more often so in {here}: {change}" + (
        f" (Fisher q = {q:.2g})" if q is not None else ""
    )
