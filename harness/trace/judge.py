"""Who is nearer to the truth: the first origin of each kind, run again alone from its stored inputs in both versions,
three times each and once in float64.

Errors are in rounding units: the larger of two norms of `harness.worker.rounding` (a row's largest error, its l2 norm),
in units of what correct rounding of the exact result to the output's dtype costs, or to a coarser dtype that a version
computes it in: who casts to bfloat16 on the way means to. The house's own unit, which holds
faultless arithmetic inside of the operator too, exists for attention and problem files alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.trace.localise import Site
from harness.trace.model import Trace
from harness.trace.outcome import Judged
from harness.trace.prove import Proof
from harness.trace.runs import Side, stored_programs
from harness.worker import dtypes, protocol
from harness.worker.rounding import MOST, Ruler, measure

Array = np.ndarray[Any, np.dtype[np.float64]]
SAME_EXACT = 1e-9  # relative: float64 forms that are no further apart have one truth
WITHIN = 32.0  # rounding units: what sums of a thousand terms may cost in the dtype, if errors are independent
MUCH = 8.0  # times: whose error is as much larger is not about as exact
COUNTED = ("largest", "row")  # norms: single elements, and rows


@dataclass(frozen=True)
class Replayed:
    """A program, run again on one side."""

    result: Mapping[str, Any]
    folder: Path
    name: str

    def values(self, kind: str = "") -> list[Array]:
        """The outputs, or their float64 forms."""
        names = ["-".join(filter(None, [self.name, kind, str(place)])) for place in range(len(self.result["outputs"]))]
        return [
            np.fromfile(self.folder / f"{name}.f64", dtype="<f8").reshape(shape)
            for name, (_, shape) in zip(names, self.result["outputs"], strict=True)
        ]


def judge_all(good: Side, bad: Side, given: Trace, proof: Proof) -> dict[str, Judged]:
    """By kind, of those whose programs were stored on both sides. `given`: the good version's trace."""
    every = {kind: stored_programs(good, bad, place) for place, kind in enumerate(proof.sites)}
    programs = {kind: stored for kind, stored in every.items() if stored}
    if not programs:
        return {}
    one, other = (
        _replay(side, [stored[label] for stored in programs.values()]) for label, side in (("good", good), ("bad", bad))
    )
    return {
        kind: _judge(a, b, good.version, bad.version, coarsest(proof.sites[kind], given, proof.seen_in[kind]))
        for kind, a, b in zip(programs, one, other, strict=True)
    }


def coarsest(site: Site, good: Trace, bad: Trace) -> str:
    """The floating dtype with the largest rounding unit in which either version makes something there."""
    operators = [*(good.operators[index] for index in site.good), *(bad.operators[index] for index in site.bad)]
    kinds = (value.type.partition("[")[0] for each in operators for value in each.outputs)
    return max(kinds, key=_roundoff, default="")


def _roundoff(dtype: str) -> float:
    return dtypes.UNIT_ROUNDOFF.get(dtype, 0.0)


def _replay(side: Side, programs: list[Path]) -> list[Replayed]:
    folder = side.replay(programs)
    results = protocol.read_json(str(folder / "result.json"))
    return [Replayed(results[path.stem], folder, path.stem) for path in programs]


def _judge(good: Replayed, bad: Replayed, one: str, other: str, computed_in: str) -> Judged:
    for side, version in ((good, one), (bad, other)):
        if side.result["error"]:
            return Judged(f"In {version} it cannot run alone: {side.result['error']}")
    if good.result["outputs"] != bad.result["outputs"]:
        return Judged("The two versions give outputs of other types or shapes.")
    floating = [dtype for dtype, _ in good.result["outputs"] if "float" in dtype]
    exact = [None if side.result["exact_error"] or not floating else side.values("exact") for side in (good, bad)]
    if exact[0] is None or exact[1] is None:
        why = good.result["exact_error"] or bad.result["exact_error"] or "its outputs are not floating"
        return Judged(f"There is no float64 form to judge by: {why}.")
    apart = _relative(exact[0], exact[1])
    if SAME_EXACT < apart <= WITHIN * max(map(_roundoff, floating)):
        text = f"There is no one float64 truth: in each version it takes in other roundings ({apart:.2g} apart)."
        return Judged(text)
    if apart > SAME_EXACT:
        text = (
            f"The two versions compute different things: in float64 too they are {apart:.2g} apart. This is no "
            "rounding; which of the two is meant, the documentation says."
        )
        return Judged(text, apart)
    units = [
        max(
            _units(got, truth, max(dtype, computed_in, key=_roundoff))
            for got, truth, (dtype, _) in zip(side.values(), exact[0], side.result["outputs"], strict=True)
            if "float" in dtype
        )
        for side in (good, bad)
    ]
    text = _sentence(units, one, other) + _alone(good.result["repeats"], bad.result["repeats"])
    return Judged(text, apart, units[0], units[1])


def _alone(one: list[Any], other: list[Any]) -> str:
    """What the times that it ran alone show, where that is not what the script saw."""
    if any(each != times[0] for times in (one, other) for each in times):
        return " Alone, it does not give the same bits every time."
    return "" if one[0] != other[0] else " Alone, the two give the same bits."


def _sentence(units: list[float], one: str, other: str) -> str:
    """Who is right."""
    told = f"error against float64, in rounding units: {units[0]:.3g} in {one}, {units[1]:.3g} in {other}"
    wrong = [version for version, error in zip((one, other), units, strict=True) if not error <= WITHIN]
    if not wrong:
        return f"Both are as exact as this type allows ({told})."
    near, far = (one, other) if units[0] < units[1] else (other, one)
    if len(wrong) == 1 and max(units) > MUCH * min(units):
        return f"{far} is wrong, {near} is right ({told})."
    return f"{near} is nearer to the truth ({told})."


def _units(got: Array, truth: Array, dtype: str) -> float:
    ruler = Ruler(truth, dtype)
    costs, _ = measure([], ruler)
    if not np.array_equal(np.isfinite(got), np.abs(truth) < ruler.threshold):  # elsewhere the norms do not look
        return MOST
    norms = ruler.norms(got)
    return float(max(norms[name] / costs[name] for name in COUNTED))


def _relative(one: list[Array], other: list[Array]) -> float:
    """The largest relative difference of an output, in the norm; infinite where only one of two values is finite."""
    found = []
    for a, b in zip(one, other, strict=True):
        same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities too: their difference is NaN
        with np.errstate(all="ignore"):
            scale = float(np.linalg.norm(a[np.isfinite(a)])) or 1.0
            apart = float(np.linalg.norm(np.where(same, 0.0, a - b))) / scale
        found.append(math.inf if math.isnan(apart) else apart)
    return max(found, default=0.0)
