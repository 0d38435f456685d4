"""One output against another, element by element, in float64; many trials folded into one `Agreement`.

Comparisons are written so that NaN and infinity cannot pass: an element that is not finite on one side only
fails every rule of its trial.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import rounding, wire
from .rounding import ErrorScale, Norms

if TYPE_CHECKING:
    from .dtypes import Array

    Limits = Mapping[str, float]  # each rule's tolerance

TOLERANCES = ("kernelbench", "strict")
Place = Tuple[List[int], List[Optional[float]]]  # an index, and both values there; None: not finite


@dataclasses.dataclass
class Compared:
    """What one trial contributes, counted block by block. Differences of `bad` elements, which are not finite on one
    side only, do not count."""

    elements: int
    passed: dict[str, bool]
    norms: Norms | None = None
    bad: int = 0
    largest: float | None = None
    total: float = 0.0
    worst: Place | None = None

    @property
    def nonfinite(self) -> bool:
        return self.bad > 0

    @property
    def mean(self) -> float | None:
        return None if self.bad or not self.elements else self.total / self.elements

    @property
    def units(self) -> float | None:
        return None if self.norms is None else max(self.norms.values())

    @property
    def badness(self) -> tuple[bool, float, float]:
        """Return what outputs are ordered by: an element that is not finite is worse than any finite error."""
        return self.nonfinite, self.units or 0.0, -1.0 if self.largest is None else self.largest


def compare(got: Array, want: Array, limits: Limits, error_scale: ErrorScale | None = None) -> Compared:
    """Return what one trial contributes. `got` and `want` are float arrays of one shape.

    `error_scale` (`rounding.ErrorScale`) is given where `want` is the truth: then the rule `rounding` applies too, and
    what the truth is once it is rounded decides what may be infinite.
    `strict` and `kernelbench` are ``|got - want| <= tolerance + tolerance * |want|`` for every element.
    """
    left, right = rounding.as_rows(got), rounding.as_rows(want)
    sums = rounding.ErrorSums(error_scale.ruler) if error_scale else None
    found = Compared(right.size, dict.fromkeys(TOLERANCES, True))
    at = None
    # What is infinite on one side is found by looking at the difference.
    with np.errstate(invalid="ignore", over="ignore"):
        for rows, columns in rounding.blocks(right.shape):
            ours, theirs = left[rows, columns], right[rows, columns]
            difference = np.subtract(ours, theirs, dtype=np.float64)
            bad = _settle(ours, theirs, difference, error_scale, limits)
            if sums:
                sums.add(rows, columns, difference)
            size = np.abs(difference, out=difference)
            scale = np.abs(theirs)
            for rule in TOLERANCES:
                inside = (size <= limits[rule] + limits[rule] * scale) | (size == 0)
                found.passed[rule] &= bool(inside.all())
            largest = float(size.max())
            if bad.any():
                at = at if found.bad else np.argmax(bad) + rows.start * right.shape[1] + columns.start
            elif not found.bad and (found.largest is None or largest > found.largest):
                at = np.argmax(size) + rows.start * right.shape[1] + columns.start
            found.bad += int(np.count_nonzero(bad))
            found.largest = max(largest, found.largest or 0.0)
            found.total += float(size.sum())
    found.passed = {rule: passed and not found.bad for rule, passed in found.passed.items()}
    if error_scale and sums:
        if not found.bad:
            found.norms = error_scale.units(sums.norms())
        found.passed["rounding"] = found.units is not None and found.units <= limits["rounding"]
    found.worst = None if at is None else _place(got, want, int(at))
    return found


def verdict(got: Array, want: Array, limits: Limits, error_scale: ErrorScale | None, decides: str) -> tuple[bool, str]:
    """Return whether an output passes the deciding rule, or KernelBench's where that one needs a truth; and a few words
    why not."""
    found = compare(got, want, limits, error_scale)
    rule = decides if decides in found.passed else "kernelbench"
    if found.passed[rule]:
        return True, ""
    size = "" if found.units is None else f", {found.units:.3g} units"
    return False, f"it fails the {rule} rule (limit {limits[rule]:g}){size}"


def compare_both(
    got: Array, again: Array | None, want: Array, limits: Limits, error_scale: ErrorScale | None = None
) -> Compared:
    """Return the same of a trial that was run twice. `again`: the second output, None where it has the same bits."""
    return worst([compare(each, want, limits, error_scale) for each in (got, again) if each is not None])


def worst(parts: Sequence[Compared]) -> Compared:
    """Return what a trial of several outputs, or runs, contributes: a rule passes where all pass it, and the worst of
    them is what the trial says of errors."""
    if len(parts) == 1:
        return parts[0]
    lead = max(parts, key=lambda part: part.badness)
    return dataclasses.replace(
        lead,
        elements=sum(part.elements for part in parts),
        passed={rule: all(part.passed.get(rule, False) for part in parts) for rule in lead.passed},
        norms=_largest_norms(parts) or None,
        bad=sum(part.bad for part in parts),
        largest=most(part.largest for part in parts),
        total=sum(part.total for part in parts),
    )


def most(values: Iterable[float | None]) -> float | None:
    """Return the largest of the numbers that are known; None where none is."""
    return max((value for value in values if value is not None), default=None)


def _largest_norms(parts: Sequence[Compared]) -> Norms:
    """Return the largest of each norm, in units; nothing where none is known."""
    known = [part.norms for part in parts if part.norms is not None]
    return {name: max(norms[name] for norms in known) for name in rounding.NORMS} if known else {}


def chooses_alike(sources: Sequence[Array], got: Array, want: Array) -> bool:
    """Return whether two arrays of indices choose the same elements of an input: of elements that are equal, which one
    is chosen is nobody's fault. Along any one axis, which may be missing in them, or of the input as a whole."""
    for source in sources:
        for axis in range(source.ndim):
            pair = [index.astype(np.intp) for index in (got, want)]
            if got.ndim == 0:
                source, axis, pair = source.reshape(-1), 0, [index.reshape(1) for index in pair]
            elif got.ndim == source.ndim - 1:
                pair = [np.expand_dims(index, axis) for index in pair]
            try:
                one, other = (np.take_along_axis(source, index, axis) for index in pair)
            except (IndexError, ValueError):  # no indices of this axis
                continue
            if all((index >= 0).all() for index in pair) and np.array_equal(one, other):
                return True
    return False


def apart(
    got: Array, again: Array, want: Array | None = None, error_scale: ErrorScale | None = None
) -> tuple[float, float | None]:
    """Return how far two outputs of one call lie from each other: (largest difference over what is finite in both; the
    same in units of rounding, where the truth is given)."""
    both = np.isfinite(got) & np.isfinite(again)
    difference = np.subtract(got, again, dtype=np.float64, where=both, out=np.zeros(got.shape))
    units = None
    if error_scale is not None and want is not None and want.shape == got.shape:
        norms = error_scale.ruler.norms(error_scale.ruler.truth + difference)
        units = max(error_scale.units(norms).values())
    return (float(np.abs(difference).max()) if difference.size else 0.0), units


def _settle(got: Array, want: Array, difference: Array, error_scale: ErrorScale | None, limits: Limits) -> Array:
    """Return which elements are wrong for being finite or not; set `difference` to zero where that is settled.

    The truth is infinite where it is so once it is rounded. Between the greatest finite number and that border, and
    within the rule's tolerance beyond it, an element may be finite or infinite. What arithmetic in the dtype loses in
    an intermediate step excuses no element.
    """
    finite = np.isfinite(difference)
    if finite.all() and (error_scale is None or error_scale.ruler.plain):
        return ~finite
    rounded, either = want, np.zeros_like(finite)
    if error_scale is not None:
        ruler = error_scale.ruler
        rounded = np.where(np.abs(want) >= ruler.threshold, np.copysign(np.inf, want), want)
        beyond = ruler.threshold * (1 + limits["rounding"] * ruler.unit)
        near = (np.abs(want) > ruler.greatest) & (np.abs(want) <= beyond)
        either = near & ((got == np.copysign(np.inf, want)) | np.isfinite(got))
    same = ~np.isfinite(got) & ((got == rounded) | (np.isnan(got) & np.isnan(rounded)))
    bad: Array = ~(np.isfinite(got) & np.isfinite(rounded) | same | either)
    difference[bad | ~finite | same] = 0.0
    return bad


def is_scaled(full: Array, small: Array, limits: Limits, error_scale: ErrorScale) -> bool:
    """Return whether `small` is `full` times one power of two, within what the rule of rounding lets pass. Arithmetic
    that neither overflows nor underflows gives the same digits to two questions whose answers are."""
    if not (np.isfinite(full).all() and np.any(full)):
        return False
    ratio = np.abs(small).max() / np.abs(full).max()
    if not 0 < ratio < np.inf:
        return False
    return compare(full * 2.0 ** round(np.log2(ratio)), small, limits, error_scale).passed["rounding"]


def _place(got: Array, want: Array, at: int) -> Place:
    values = [float(side.flat[at]) for side in (got, want)]
    index = [int(part) for part in np.unravel_index(at, got.shape)]
    return index, [value if np.isfinite(value) else None for value in values]


def combine(against: str, trials: Sequence[Compared]) -> wire.Agreement:
    """Return the agreement of `compare`'s results, in the order of trials."""
    elements = sum(trial.elements for trial in trials)
    finite = elements - sum(trial.bad for trial in trials)
    units = [trial.units for trial in trials]
    rules = trials[0].passed if trials else {}
    truth = "rounding" in rules
    number = max(range(len(trials)), key=lambda each: (trials[each].nonfinite, trials[each].badness[2]), default=0)
    at = trials[number].worst if trials else None
    return wire.Agreement(
        against=against,
        passed={rule: sum(trial.passed[rule] for trial in trials) for rule in sorted(rules)},
        max_abs=most(trial.largest for trial in trials),
        mean_abs=sum(trial.total for trial in trials) / finite if finite else None,
        max_units=most(units),
        units_per_trial=units if truth else [],
        mean_abs_per_trial=[trial.mean for trial in trials] if truth else [],
        norms=_largest_norms(trials),
        nonfinite_trials=sum(trial.nonfinite for trial in trials),
        elements=elements,
        worst=at and wire.Worst(number, at[0], *at[1]),
    )
