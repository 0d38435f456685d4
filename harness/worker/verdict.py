"""Status and one sentence from what was counted; pure."""

from __future__ import annotations

import collections
from typing import Collection, Iterable, Mapping, Sequence, Tuple

from . import agreement, power, protocol, rounding, wire

Judged = Tuple[wire.RecipeResult, wire.TargetResult]


def describe_target(
    result: wire.TargetResult, trials: int, decides: str, limits: Mapping[str, float], deterministic: bool = False
) -> tuple[protocol.Status, str]:
    """(status, message) of a target on a recipe, whose agreements are complete.

    Other bits from run to run are a property, and no fault, where all of them pass: sums whose order is not fixed round
    otherwise each time. `deterministic`: the same bits were asked for."""
    by_name = {item.against: item for item in result.against}
    # Without a truth a problem's own model is all there is to agree with.
    against = by_name.get(protocol.TRUTH) or by_name.get(protocol.MODEL)
    if against is None:
        if result.target != protocol.KERNEL:
            return protocol.OK, "not judged: there is no truth"
        return protocol.NOT_RUN, "cannot be judged: there is neither a truth nor a reference"
    faults = []
    rule = decides if decides in against.passed else "kernelbench"
    passed = against.passed[rule]
    if passed < trials:
        rate = f"{passed} of {trials} trials pass the {rule} rule (limit {limits[rule]:g})"
        faults.append(f"{rate} against {against.against}, {_largest(against)}")
        if result.leaves_range:
            faults.append(f"{protocol.LEAVES_RANGE} in {result.leaves_range} of {trials} trials")
    unsteady = describe_repeats(result.repeats_differ, trials, result.repeats_max_units)
    if unsteady and deterministic:
        faults.append(f"`deterministic: true` asks for the same bits: {unsteady}")
    if result.inputs_mutated:
        faults.append(f"{result.inputs_mutated} of {trials} trials changed their inputs")
    if result.unwritten_trials:
        faults.append(f"{result.unwritten_trials} of {trials} trials left output unwritten")
    if not faults:
        return protocol.OK, unsteady
    return protocol.WRONG, "; ".join(faults if deterministic or not unsteady else [*faults, unsteady])


def describe_repeats(differ: int, trials: int, units: float | None) -> str:
    """In how many trials the second run gave other bits, and how far apart they are; empty where in none."""
    if not differ:
        return ""
    size = "" if units is None else f", at most {units:.3g} units apart"
    return f"not bit-repeatable: {differ} of {trials} trials gave other bits when run again{size}"


def _largest(against: wire.Agreement) -> str:
    parts = []
    if against.max_abs is not None:
        parts.append(f"largest error {against.max_abs:.3g}")
    if against.max_units is not None:
        parts.append(f"{against.max_units:.3g} units")
    if against.nonfinite_trials:
        parts.append(f"NaN or infinity in {against.nonfinite_trials}")
    return ", ".join(parts)


def spelled(precision: Collection[str]) -> str:
    """What is declared, as in matrix.yaml."""
    parts = ["products: tf32"] if rounding.TF32_MATMUL in precision else []
    parts += ["products: tf32x3"] if rounding.TF32X3_MATMUL in precision else []
    parts += ["sums: float16"] if rounding.FLOAT16_SUMS in precision else []
    return "`precision: {{{}}}`".format(", ".join(parts))


def describe_validation(
    recipes: Iterable[wire.RecipeResult], decides: str, no_truth: str = "", subject: str = protocol.KERNEL
) -> tuple[protocol.Status, str]:
    """(status, message) of the subject over all recipes. What passes is undecidable where what is wrong would too."""
    kernels = [(r, t) for r in recipes for t in r.targets if t.target == subject]
    if not kernels:
        return protocol.NOT_RUN, f"no output of the {subject} to judge"
    failed = [(recipe, target) for recipe, target in kernels if target.status != protocol.OK]
    if not failed:
        units = [target.repeats_max_units for _, target in kernels]
        differ = sum(target.repeats_differ for _, target in kernels)
        largest = max((value for value in units if value is not None), default=None)
        repeats = describe_repeats(differ, sum(recipe.trials for recipe, _ in kernels), largest)
        return _decided(kernels, decides, no_truth, repeats)

    def failures(pair: Judged) -> int:
        recipe, target = pair
        return recipe.trials - (target.against[0].passed.get(decides, 0) if target.against else 0)

    recipe, target = max(failed, key=failures)
    if target.fault is not protocol.Fault.SUBJECT:  # it says so of no recipe
        return target.status, target.message
    return target.status, target.message if subject != protocol.KERNEL else f"{recipe.recipe}: {target.message}"


def find_fault(recipes: Iterable[wire.RecipeResult], subject: str) -> protocol.Fault:
    """Return who failed where the subject did not end well."""
    faults = [target.fault for recipe in recipes for target in recipe.targets if target.target == subject]
    return next((fault for fault in faults if fault is not protocol.Fault.SUBJECT), protocol.Fault.SUBJECT)


def _decided(kernels: Iterable[Judged], decides: str, no_truth: str, said: str) -> tuple[protocol.Status, str]:
    """Of what passes: `said` with it, unless nothing is decided by that."""
    for recipe, kernel in kernels:
        why = power.undecidable(recipe.power)
        if decides == "rounding" and all(item.against != protocol.TRUTH for item in kernel.against):
            some = bool(recipe.costs)  # and then what was proven of the rule was proven with a truth
            where = "" if kernel.target == protocol.MODEL else f"{recipe.recipe}: "
            lacks = "there is no truth{} ({})".format(
                " for every trial" if some else "", no_truth or "nobody computed it"
            )
            if some or not recipe.power:
                return protocol.UNDECIDABLE, where + lacks
            said = "; ".join(filter(None, [said, lacks + ": held against Model, by KernelBench's tolerance"]))
        if why:
            return protocol.UNDECIDABLE, f"{recipe.recipe}: {why}"
    return protocol.OK, said


def nearer(rows: Iterable[Mapping[tuple[str, str], agreement.Compared]], references: Sequence[str]) -> dict[str, int]:
    """Trials by the reference with the smallest mean difference; of equals the first in the request's order."""
    counts: collections.Counter[str] = collections.Counter()
    for pairs in rows:
        found = [pairs[protocol.KERNEL, name] for name in references]
        totals = [(pair.total, index) for index, pair in enumerate(found) if not pair.nonfinite]
        if totals:
            counts[references[min(totals)[1]]] += 1
    return dict(counts)
