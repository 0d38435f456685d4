"""Which version is nearer to the ground truth: the first diverging operator of each kind, run again alone from its
stored inputs in both versions, three times each and once in float64.

Errors are in rounding units: the larger of two norms of `harness.worker.rounding` (a row's largest error, its l2 norm),
in units of what correct rounding of the exact result to the output's dtype costs, or to a coarser dtype that a version
computes it in: a cast to bfloat16 on the way is meant. The matrix's own unit, which emulates faultless arithmetic
inside of the operator too, exists for attention and problem files only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.trace.diverge import Site
from harness.trace.model import LIMIT_UNITS, Accuracy, OperatorKind, Trace, Truth
from harness.trace.runs import TracedVersion, find_programs
from harness.trace.substitute import Proof
from harness.worker import dtypes, protocol
from harness.worker.rounding import MOST, Ruler, measure

Array = np.ndarray[Any, np.dtype[np.float64]]
SAME_EXACT = 1e-9  # relative: float64 forms that are no further apart have one truth
MUCH = 8.0  # times: a version whose error is so much larger is not about as accurate
NORMS = ("largest", "row")  # single elements, and rows


@dataclass(frozen=True)
class Replayed:
    """A program, run again on one side."""

    facts: Mapping[str, Any]
    stem: str  # of the files with its values

    def load(self, form: str) -> list[Array]:
        """Return the outputs as float64: their `value`, or their `exact` form."""
        shapes = [shape for _, shape in self.facts["outputs"]]
        return [
            np.fromfile(f"{self.stem}-{form}-{number}.f64", dtype="<f8").reshape(shape)
            for number, shape in enumerate(shapes)
        ]


def judge_all(good: TracedVersion, bad: TracedVersion, given: Trace, proof: Proof) -> dict[OperatorKind, Accuracy]:
    """Judge every kind whose programs were stored on both sides. `given`: the good version's trace."""
    stored = [(each, find_programs(good, bad, number)) for number, each in enumerate(proof.all.values())]
    programs = [(each, files) for each, files in stored if files]
    if not programs:
        return {}
    left = _replay(good, [files["good"] for _, files in programs])
    right = _replay(bad, [files["bad"] for _, files in programs])
    return {
        each.kind: judge(x, y, find_coarsest(each.site, given, each.seen_in))
        for (each, _), x, y in zip(programs, left, right, strict=True)
    }


def _replay(side: TracedVersion, programs: list[Path]) -> list[Replayed]:
    folder = side.replay(programs)
    facts = protocol.read_json(str(folder / "result.json"))
    return [Replayed(facts[path.stem], str(folder / path.stem)) for path in programs]


def find_coarsest(site: Site, good: Trace, bad: Trace) -> str:
    """Return the floating dtype with the largest rounding unit in which either version makes something there."""
    operators = [*(good.operators[index] for index in site.good), *(bad.operators[index] for index in site.bad)]
    names = (value.type.partition("[")[0] for operator in operators for value in operator.outputs)
    return max(names, key=_roundoff, default="")


def _roundoff(dtype: str) -> float:
    return dtypes.UNIT_ROUNDOFF.get(dtype, 0.0)


def judge(good: Replayed, bad: Replayed, coarsest: str) -> Accuracy:
    """Compare what both versions computed with the ground truth, in units of the coarsest dtype."""
    left, right = good.facts, bad.facts
    if left["error"] or right["error"]:
        return Accuracy(Truth.NOT_RUN, left["error"] or right["error"])
    if left["outputs"] != right["outputs"]:
        return Accuracy(Truth.OTHER_OUTPUTS)
    floating = [number for number, (dtype, _) in enumerate(left["outputs"]) if "float" in dtype]
    error = left["exact_error"] or right["exact_error"]
    if error or not floating:
        return Accuracy(Truth.NO_GROUND_TRUTH, error or "its outputs are not floating")
    truth, other = good.load("exact"), bad.load("exact")
    difference = max(map(compare_arrays, truth, other))
    names = [left["outputs"][number][0] for number in floating]
    if SAME_EXACT < difference <= LIMIT_UNITS * max(map(_roundoff, names)):
        return Accuracy(Truth.ROUNDS_INSIDE, exact_difference=difference)
    if difference > SAME_EXACT:
        return Accuracy(Truth.OTHER_MEANING, exact_difference=difference)
    units = []
    for values in (good.load("value"), bad.load("value")):
        errors = [
            measure_error(values[number], truth[number], max(name, coarsest, key=_roundoff))
            for number, name in zip(floating, names, strict=True)
        ]
        units.append(max(errors))
    runs = left["repeats"], right["repeats"]
    return replace(
        rank(units[0], units[1]),
        exact_difference=difference,
        is_deterministic=all(run == repeats[0] for repeats in runs for run in repeats),
        is_equal_alone=runs[0] == runs[1],
    )


def rank(good_units: float, bad_units: float) -> Accuracy:
    """Return which version is nearer to the ground truth, by its errors."""
    near, far = sorted((good_units, bad_units))
    truth = Truth.ONE_NEARER
    if far <= LIMIT_UNITS:
        truth = Truth.BOTH_ACCURATE
    elif near <= LIMIT_UNITS and far > MUCH * near:
        truth = Truth.ONE_CORRECT
    return Accuracy(truth, good_units=good_units, bad_units=bad_units)


def measure_error(values: Array, truth: Array, dtype: str) -> float:
    """Return the error in rounding units of a dtype."""
    ruler = Ruler(truth, dtype)
    costs, _ = measure([], ruler)
    if not np.array_equal(np.isfinite(values), np.abs(truth) < ruler.threshold):  # elsewhere the norms do not look
        return MOST
    norms = ruler.norms(values)
    return float(max(norms[name] / costs[name] for name in NORMS))


def compare_arrays(one: Array, other: Array) -> float:
    """Return the relative difference, in the norm; infinite where only one of two values is finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))  # infinities too: their difference is NaN
    with np.errstate(all="ignore"):
        scale = float(np.linalg.norm(one[np.isfinite(one)])) or 1.0
        difference = float(np.linalg.norm(np.where(same, 0.0, one - other))) / scale
    return math.inf if math.isnan(difference) else difference
