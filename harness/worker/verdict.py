"""What is seen of each trial, and what follows from all of them: counts, a status and one sentence.

Pure: nothing here runs a target, and nothing needs PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Iterable, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from . import agreement, dtypes, power, protocol, rounding, wire

if TYPE_CHECKING:
    from .inputs import Shape
    from .judging import TargetOutput
    from .rounding import Norms
    from .subjects import WorkloadTrial
    from .truth import Exact

Judged = Tuple[wire.RecipeResult, wire.TargetResult]

# -- one trial --------------------------------------------------------------------------------------------


class JudgedOutput(NamedTuple):
    """What is kept of one of a target's outputs of one trial."""

    dtype: str
    shape: Shape
    layout: str
    sha256: str
    apart: tuple[float, float | None] | None  # how far its second run is from its first, where it has other bits
    truth: agreement.Compared | None
    leaves_range: bool  # `rounding.ErrorScale` of its truth


class JudgedTarget(NamedTuple):
    """What is kept of one target's outputs of one trial."""

    parts: dict[str, JudgedOutput]
    mutated: bool
    unwritten: bool

    @property
    def sha256(self) -> str:
        """Return the digest of what is returned; of what is written to inputs where that is all."""
        returned = {name: part for name, part in self.parts.items() if not name.startswith(protocol.WRITTEN)}
        digests = [part.sha256 for part in (returned or self.parts).values()]
        return digests[0] if len(digests) == 1 else protocol.digest(digests)

    @property
    def apart(self) -> tuple[float, float | None] | None:
        """Return how far two runs are apart, of the output that is furthest from itself."""
        return max((part.apart for part in self.parts.values() if part.apart), key=lambda each: each[0], default=None)


class TrialRow(NamedTuple):
    """Everything about one trial: numbers and digests alone."""

    input_sha256: str
    pairs: dict[tuple[str, str], agreement.Compared]
    seen: dict[str, JudgedTarget]
    truth_sha256: str
    costs: Norms
    would_pass: list[str]  # the precision at which a failing output would pass


def look(output: TargetOutput, own: Exact | None, trial: WorkloadTrial, limits: Mapping[str, float]) -> JudgedOutput:
    """Return what is seen of one output, by its truth where there is one. Indices that choose equal elements of an
    input are as right as the truth's."""
    value, again = output.values, output.values_again
    truth = None
    if own is not None and own.values.shape == value.shape:
        if output.dtype not in dtypes.FLOATING and not np.array_equal(value, own.values):
            dtype = trial.workload.dtype
            sources = [dtypes.decode(a, dtype) for a in trial.sources if a.dtype == dtypes.STORAGE[dtype]]
            if agreement.chooses_alike(sources, value, own.values):
                value = own.values
        truth = agreement.compare_both(value, again, own.values, limits, own.error_scale)
    apart = None
    if again is not None:
        between = (own.values, own.error_scale) if own is not None else ()
        apart = agreement.apart(value, again, *between)
    leaves_range = own is not None and own.error_scale.leaves_range
    return JudgedOutput(output.dtype, output.array.shape, output.layout, output.sha256, apart, truth, leaves_range)


# -- all trials of a recipe -------------------------------------------------------------------------------


def describe_output(name: str, trials: Sequence[JudgedOutput]) -> wire.OutputResult:
    """Return what is recorded of one of several outputs."""
    first, compared = trials[0], [part.truth for part in trials if part.truth is not None]
    return wire.OutputResult(
        name=name,
        dtype=first.dtype,
        shape=list(first.shape),
        layout=", ".join(dict.fromkeys(part.layout for part in trials)),
        output_sha256=[part.sha256 for part in trials],
        repeats_differ=sum(part.apart is not None for part in trials),
        truth=agreement.combine(protocol.TRUTH, compared) if len(compared) == len(trials) else None,
    )


def summarise_target(
    result: wire.TargetResult, rows: Sequence[TrialRow], trials: int, request: wire.JudgeRequest
) -> wire.TargetResult:
    """Fill in what all trials of one target say, and judge it."""
    name = result.target
    is_kernel = name == protocol.KERNEL
    _count(result, [row.seen[name] for row in rows])
    for other in [protocol.TRUTH, *(request.references if is_kernel else ())]:
        found = [row.pairs[name, other] for row in rows if (name, other) in row.pairs]
        if len(found) == trials:
            result.against.append(agreement.combine(other, found))
    deterministic = is_kernel and request.deterministic
    result.status, result.message = describe_target(result, trials, request.decides, request.limits, deterministic)
    bad = [part for part in result.outputs if part.truth and part.truth.passed.get(request.decides) != trials]
    faulty = [part.name or "output" for part in bad]
    if 0 < len(faulty) < len(result.outputs) and result.status == protocol.WRONG:
        result.message += f" ({', '.join(faulty)})"
    would = next((row.would_pass for row in rows if row.would_pass), None)
    if is_kernel and would:
        result.message += f"; it would pass as declared {spelled(would)}"
    return result


def _count(result: wire.TargetResult, seen: Sequence[JudgedTarget]) -> None:
    apart = [each.apart for each in seen if each.apart is not None]
    result.output_sha256 = [each.sha256 for each in seen]
    result.repeats_differ = len(apart)
    result.repeats_max_abs = max((size for size, _ in apart), default=None)
    result.repeats_max_units = max((units for _, units in apart if units is not None), default=None)
    result.inputs_mutated = sum(each.mutated for each in seen)
    result.unwritten_trials = sum(each.unwritten for each in seen)
    result.leaves_range = sum(any(part.leaves_range for part in each.parts.values()) for each in seen)
    first = seen[0].parts
    result.writes = [part[len(protocol.WRITTEN) :] for part in first if part.startswith(protocol.WRITTEN)]
    if result.target == protocol.MODEL or len(first) > 1:
        parts = [part for part in first if all(part in each.parts for each in seen)]
        result.outputs = [describe_output(part, [each.parts[part] for each in seen]) for part in parts]


def describe_target(
    result: wire.TargetResult, trials: int, decides: str, limits: Mapping[str, float], deterministic: bool = False
) -> tuple[protocol.Status, str]:
    """Return (status, message) of a target on a recipe, whose agreements are complete.

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
    """Return in how many trials the second run gave other bits, and how far apart they are; empty where in none."""
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
    """Return what is declared, as in matrix.yaml."""
    parts = ["products: tf32"] if rounding.TF32_MATMUL in precision else []
    parts += ["products: tf32x3"] if rounding.TF32X3_MATMUL in precision else []
    parts += ["sums: float16"] if rounding.FLOAT16_SUMS in precision else []
    return "`precision: {{{}}}`".format(", ".join(parts))


def describe_validation(
    recipes: Iterable[wire.RecipeResult], decides: str, no_truth: str = "", subject: str = protocol.KERNEL
) -> wire.Outcome:
    """Return how the subject ends over all recipes. What passes is undecidable where what is wrong would too."""
    judged = [(r, t) for r in recipes for t in r.targets if t.target == subject]
    failed = [(recipe, target) for recipe, target in judged if target.status != protocol.OK]
    if not judged:
        return wire.Outcome(protocol.NOT_RUN, f"no output of the {subject} to judge")
    if not failed:
        units = [target.repeats_max_units for _, target in judged if target.repeats_max_units is not None]
        differ, trials = (sum(numbers) for numbers in zip(*((t.repeats_differ, r.trials) for r, t in judged)))
        return _decide(judged, decides, no_truth, describe_repeats(differ, trials, max(units, default=None)))

    def severity(pair: Judged) -> tuple[bool, int]:
        """Return what the worst has most of. What kernel-matrix could not do says nothing of a recipe."""
        recipe, target = pair
        passed = target.against[0].passed.get(decides, 0) if target.against else 0
        return target.fault is not protocol.Fault.SUBJECT, recipe.trials - passed

    recipe, target = max(failed, key=severity)
    names_recipe = subject == protocol.KERNEL and target.fault is protocol.Fault.SUBJECT
    message = f"{recipe.recipe}: {target.message}" if names_recipe else target.message
    return wire.Outcome(target.status, message, fault=target.fault, failure=target.failure)


def _decide(judged: Iterable[Judged], decides: str, no_truth: str, said: str) -> wire.Outcome:
    """Return the outcome of what passes, which `said` is told of, unless nothing is decided by that."""
    for recipe, target in judged:
        if decides == "rounding" and all(item.against != protocol.TRUTH for item in target.against):
            some = bool(recipe.costs)  # and then what was proven of the rule was proven with a truth
            where = "" if target.target == protocol.MODEL else f"{recipe.recipe}: "
            trials = " for every trial" if some else ""
            lacks = f"there is no truth{trials} ({no_truth or 'nobody computed it'})"
            if some or not recipe.power:
                return wire.Outcome(protocol.UNDECIDABLE, where + lacks)
            said = "; ".join(filter(None, [said, lacks + ": held against Model, by KernelBench's tolerance"]))
        why = power.undecidable(recipe.power)
        if why:
            return wire.Outcome(protocol.UNDECIDABLE, f"{recipe.recipe}: {why}")
    return wire.Outcome(protocol.OK, said)
