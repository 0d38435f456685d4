"""Who is nearer to the truth: the first origin of each kind, run again alone from its stored inputs in both versions,
three times each and once in float64.

Errors are in rounding units: the larger of two norms of `harness.worker.rounding` (a row's largest error, its l2 norm),
in units of what correct rounding of the exact result to the output's dtype costs. The house's own unit, which holds
faultless arithmetic inside of the operator too, exists for attention and problem files alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.trace.prove import Proof
from harness.trace.runs import Side
from harness.worker import dtypes
from harness.worker.rounding import MOST, Ruler, measure

Array = np.ndarray[Any, np.dtype[np.float64]]
SAME_EXACT = 1e-9  # relative: float64 forms that are no further apart have one truth
WITHIN = 32.0  # rounding units: what sums of a thousand terms may cost in the dtype, if errors are independent
MUCH = 8.0  # times: whose error is as much larger is not about as exact
COUNTED = ("largest", "row")  # norms: single elements, and rows


@dataclass(frozen=True)
class Judged:
    """Of one kind: errors in rounding units; None where there is no float64 form, or they have no single truth."""

    good_units: float | None = None
    bad_units: float | None = None
    difference: float = 0.0  # of the two outputs, relative, in the norm
    repeats: bool = True  # each version gave the same bits three times
    differs: bool = True  # alone, the two give other bits
    exact_difference: float | None = None  # of the two float64 forms
    nearer: str = ""  # good, bad; empty where it cannot be told
    text: str = ""


def judge_all(good: Side, bad: Side, proof: Proof) -> dict[str, Judged]:
    """By kind, of those whose programs were stored on both sides."""
    kinds = dict(enumerate(proof.sites))
    programs = {
        side.version: {path.stem: path for place in kinds if (path := side.store / f"{label}-{place}.pt").exists()}
        for label, side in (("good", good), ("bad", bad))
    }
    if not all(programs.values()):
        return {}
    folders = {side.version: side.replay(programs[side.version]) for side in (good, bad)}
    results = {version: json.loads((folder / "result.json").read_text()) for version, folder in folders.items()}
    found = {}
    for place, kind in kinds.items():
        sides = [
            Replayed(results[side.version].get(f"{label}-{place}"), folders[side.version], f"{label}-{place}")
            for label, side in (("good", good), ("bad", bad))
        ]
        if all(side.result is not None for side in sides):
            found[kind] = _judge(sides[0], sides[1], good.version, bad.version)
    return found


@dataclass(frozen=True)
class Replayed:
    result: Mapping[str, Any] | None
    folder: Path
    name: str

    def of(self, key: str) -> Any:
        assert self.result is not None
        return self.result[key]

    def values(self, kind: str = "") -> list[Array]:
        """The outputs, or their float64 forms."""
        names = ["-".join(filter(None, [self.name, kind, str(place)])) for place in range(len(self.of("outputs")))]
        return [
            np.fromfile(self.folder / f"{name}.f64", dtype="<f8").reshape(shape)
            for name, (_, shape) in zip(names, self.of("outputs"), strict=True)
        ]


def _judge(good: Replayed, bad: Replayed, one: str, other: str) -> Judged:
    for side, version in ((good, one), (bad, other)):
        if side.of("error"):
            return Judged(text=f"In {version} it cannot run alone: {side.of('error')}")
    repeats = all(each == side.of("repeats")[0] for side in (good, bad) for each in side.of("repeats"))
    if good.of("outputs") != bad.of("outputs"):
        return Judged(repeats=repeats, text="The two versions give outputs of other types or shapes.")
    differs = good.of("repeats")[0] != bad.of("repeats")[0]
    difference = _relative(good.values(), bad.values())
    facts = {"repeats": repeats, "differs": differs, "difference": difference}
    floating = [dtype for dtype, _ in good.of("outputs") if "float" in dtype]
    exact = [None if side.of("exact_error") or not floating else side.values("exact") for side in (good, bad)]
    if exact[0] is None or exact[1] is None:
        why = good.of("exact_error") or bad.of("exact_error") or "its outputs are not floating"
        return Judged(**facts, text=f"There is no float64 form to judge by: {why}.")
    apart = _relative(exact[0], exact[1])
    if SAME_EXACT < apart <= WITHIN * max(dtypes.UNIT_ROUNDOFF.get(dtype, 0.0) for dtype in floating):
        text = f"There is no one float64 truth: in each version it takes in other roundings ({apart:.2g} apart)."
        return Judged(**facts, text=text)
    if not apart <= SAME_EXACT:
        text = (
            f"The two versions compute different things: in float64 too they are {apart:.2g} apart. This is no "
            "rounding; which of the two is meant, the documentation says"
        )
        return Judged(**facts, exact_difference=apart, text=f"{text}.")
    units = [
        max(_units(got, truth, dtype) for got, truth, (dtype, _) in
            zip(side.values(), exact[0], side.of("outputs"), strict=True) if "float" in dtype)
        for side in (good, bad)
    ]  # fmt: skip
    nearer = "" if units[0] == units[1] else "good" if units[0] < units[1] else "bad"
    return Judged(
        **facts, exact_difference=apart, good_units=units[0], bad_units=units[1], nearer=nearer,
        text=_sentence(units, one, other) + ("" if differs else " Alone, the two give the same bits."),
    )  # fmt: skip


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
    """The largest relative difference of an output, in the norm."""
    found = []
    for a, b in zip(one, other, strict=True):
        with np.errstate(all="ignore"):
            scale = float(np.linalg.norm(a)) or 1.0
            found.append(float(np.linalg.norm(a - b)) / scale)
    return max(found, default=0.0)
