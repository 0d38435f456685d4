"""What a run's records say of one version: rates and times of the cells that are looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from harness.config.plan import Plan
from harness.run.pairwise import load_arrays
from harness.schema.bisection_records import Aspect, CellSeen, Rate
from harness.schema.records import LaunchRecord, RecipeResult, TargetResult, ValidationRecord
from harness.schema.storage import Run
from harness.search.bisect.oracle import LEVEL
from harness.search.bisect.sketches import sketch_truths
from harness.search.bisect.subject import Place, cell_names
from harness.search.ratio import ratio_of
from harness.stats.medians import COLD, time_us
from harness.worker import protocol


def observe(run: Run, plan: Plan, environment: str, what: Aspect, target: str) -> list[CellSeen]:
    """Every cell of `environment`; times against those of the plan's baseline in the same blocks."""
    names = cell_names(plan, environment, target)
    if what == "latency":
        launches = run.launches()
        found = []
        for name, place in names.items():
            good_us, why_not = medians(launches, plan.baseline, place, target)
            this_us, why = medians(launches, environment, place, target)
            same = environment == plan.baseline
            found.append(timed(name, good_us, this_us, level=LEVEL / len(names), same=same, why=why or why_not))
        return found
    validations = {(v.kernel, v.workload, v.device): v for v in run.validations() if v.environment == environment}
    found = []
    for name, (kernel, workload, device) in names.items():
        record = validations.get((kernel, workload, device))
        seen = validated(name, record, target)
        if record is not None and record.arrays and seen.rates and plan.workload(workload).problem:
            truths = sketch_truths(load_arrays(run.folder / record.arrays))
            seen = replace(seen, truths=truths)
        found.append(seen)
    return found


def validated(name: str, record: ValidationRecord | None, target: str) -> CellSeen:
    """Pass rates by the deciding rule, recipe by recipe."""
    if record is None:
        return CellSeen(cell=name, status=protocol.NOT_RUN, message="the run holds no validation of it")
    found = [(recipe, result) for recipe in record.recipes for result in recipe.targets if result.target == target]
    ended = next((result for _, result in found if result.status not in protocol.RAN), None)
    if target == protocol.KERNEL and record.status not in protocol.RAN:
        return CellSeen(cell=name, status=record.status, message=record.message)
    if ended is not None:
        return CellSeen(cell=name, status=ended.status, message=ended.message)
    rates = {recipe.recipe: rate for recipe, result in found if (rate := rate_of(record, recipe, result))}
    if not rates:
        return CellSeen(cell=name, status=protocol.NOT_RUN, message=record.message or "its outputs were not judged")
    right = all(rate.passed == rate.trials for rate in rates.values())
    return CellSeen(cell=name, status=protocol.OK if right else protocol.WRONG, rates=rates)


def rate_of(record: ValidationRecord, recipe: RecipeResult, result: TargetResult) -> Rate | None:
    """Trials without a fault, against the truth where there is one; other bits when run again are a fault where the
    same were asked for. Which trials have it is not recorded: at least so many failed."""
    truth = [agreement for agreement in result.against if agreement.against == protocol.TRUTH]
    judged = next(iter(truth or result.against), None)
    if judged is None:
        return None
    passed = judged.passed.get(record.decides, judged.passed.get("kernelbench", 0))
    other_bits = result.repeats_differ if record.deterministic and result.target == protocol.KERNEL else 0
    faults = max(other_bits, result.inputs_mutated, result.unwritten_trials)
    return Rate(passed=max(0, min(passed, recipe.trials - faults)), trials=recipe.trials)


def medians(launches: Iterable[LaunchRecord], environment: str, place: Place, target: str) -> tuple[list[float], str]:
    """(launch medians, why there are none) of one target."""
    kernel, workload, device = place
    found, why = [], "no launch of it is recorded"
    for launch in launches:
        if (launch.environment, launch.kernel, launch.device) != (environment, kernel, device):
            continue
        if launch.status != protocol.OK:
            why = launch.message or launch.status
        for timing in launch.timings:
            if (timing.workload, timing.target) == (workload, target):
                time = time_us(timing, COLD)
                if time is not None:
                    found.append(time)
                else:
                    why = timing.message or timing.status
    return found, "" if found else why


def timed(name: str, good_us: list[float], this_us: list[float], *, level: float, same: bool, why: str) -> CellSeen:
    """A version's time over the good one's. The good one is its own measure: exactly 1."""
    if not good_us or not this_us:
        return CellSeen(cell=name, status=protocol.NOT_RUN, message=why)
    ratio, low, high = (1.0, 1.0, 1.0) if same else ratio_of(good_us, this_us, level)
    return CellSeen(
        cell=name,
        status=protocol.OK,
        ratio=ratio,
        low=low,
        high=high,
        median_us=median(this_us),
        launches=len(this_us),
    )
