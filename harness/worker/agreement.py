"""One output against another, element by element, in float64; many trials folded into one `Agreement`.

Comparisons are written so that NaN and infinity cannot pass: an element that is not finite on one side only
fails every rule of its trial.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Mapping, Sequence

import numpy as np

from . import rounding, wire
from .rounding import ErrorScale, Norms

if TYPE_CHECKING:
    from .dtypes import Array

EDGES = tuple(10.0**power for power in range(-8, 1))
TOLERANCES = ("kernelbench", "strict")


@dataclasses.dataclass
class Compared:
    """What one trial contributes, counted block by block; `wire.Agreement` is made of them. Differences of `bad`
    elements, which are not finite on one side only, do not count."""

    elements: int
    passed: dict[str, bool] = dataclasses.field(default_factory=dict)
    norms: Norms | None = None
    within: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(TOLERANCES, 0))
    bad: int = 0
    largest: float | None = None
    total: float = 0.0
    histogram: list[int] = dataclasses.field(default_factory=lambda: [0] * (len(EDGES) + 2))
    at: int | None = None
    worst: tuple[list[int], list[float | None]] | None = None

    @property
    def nonfinite(self) -> bool:
        return self.bad > 0

    @property
    def finite(self) -> int:
        return self.elements - self.bad

    @property
    def mean(self) -> float | None:
        return None if self.bad or not self.elements else self.total / self.elements

    @property
    def units(self) -> float | None:
        return None if self.norms is None else max(self.norms.values())

    def add(self, difference: Array, want: Array, bad: Array | None, limits: Mapping[str, float], first: int) -> None:
        """Absolute differences, zero where they are `bad`; the first is that of the element with this number."""
        size = np.abs(want)
        for rule in TOLERANCES:
            limit = limits[rule]
            inside = difference <= limit + limit * size
            self.within[rule] += int(np.count_nonzero(inside if bad is None else inside & ~bad))
        beyond = 0
        if bad is not None and bad.any():
            if not self.bad:  # an element that is not finite is worse than any finite error
                self.at = first + int(np.argmax(bad))
            beyond = int(np.count_nonzero(bad))
            self.bad += beyond
            difference = difference[~bad]
        if difference.size:
            largest = float(difference.max())
            if not self.bad and (self.largest is None or largest > self.largest):
                self.at = first + int(np.argmax(difference))
            self.largest = largest if self.largest is None else max(self.largest, largest)
            self.total += float(difference.sum())
        self.histogram = [sum(pair) for pair in zip(self.histogram, histogram(difference, beyond))]


def compare(got: Array, want: Array, limits: Mapping[str, float], error_scale: ErrorScale | None = None) -> Compared:
    """What one trial contributes. `got` and `want` are float arrays of one shape.

    `error_scale` (`rounding.ErrorScale`) is given where `want` is the truth: then the rule `rounding` applies too, and
    what the truth is once it is rounded decides what may be infinite.
    `strict` and `kernelbench` are ``|got - want| <= tolerance + tolerance * |want|`` for every element.
    """
    ruler = error_scale.ruler if error_scale else None
    left, right = rounding.as_rows(got), rounding.as_rows(want)
    sums = rounding.ErrorSums(ruler) if ruler else None
    found = Compared(right.size)
    # What is infinite on one side is found by looking at the difference.
    with np.errstate(invalid="ignore", over="ignore"):
        for rows, columns in rounding.blocks(right.shape):
            ours, theirs = left[rows, columns], right[rows, columns]
            difference = np.subtract(ours, theirs, dtype=np.float64)
            finite = np.isfinite(difference)
            bad = None
            if not (finite.all() and (ruler is None or ruler.plain)):
                bad = _settle(ours, theirs, difference, finite, error_scale, limits)
                theirs = np.where(np.isfinite(theirs), theirs, 0.0)
            if ruler and sums:
                counted = theirs if ruler.plain else np.where(np.abs(theirs) < ruler.threshold, theirs, 0.0)
                sums.add(rows, difference, counted)
            np.abs(difference, out=difference)
            found.add(difference, theirs, bad, limits, rows.start * right.shape[1] + columns.start)
    found.passed = {rule: not found.bad and found.within[rule] == right.size for rule in TOLERANCES}
    if error_scale is not None:
        if sums and not found.bad:
            found.norms = error_scale.units(sums.norms())
        found.passed["rounding"] = found.units is not None and found.units <= limits["rounding"]
    found.worst = None if found.at is None else _worst(got, want, found.at)
    return found


def verdict(
    got: Array, want: Array, limits: Mapping[str, float], error_scale: ErrorScale | None, decides: str
) -> tuple[bool, str]:
    """Whether an output passes the deciding rule, or KernelBench's where that one needs a truth; and a few words why
    not."""
    found = compare(got, want, limits, error_scale)
    rule = decides if decides in found.passed else "kernelbench"
    if found.passed[rule]:
        return True, ""
    size = "" if found.units is None else f", {found.units:.3g} units"
    return False, f"it fails the {rule} rule (limit {limits[rule]:g}){size}"


def compare_both(
    got: Array, again: Array | None, want: Array, limits: Mapping[str, float], error_scale: ErrorScale | None = None
) -> Compared:
    """The same of a trial that was run twice. `again` is the second run's output, None where it has the same bits. A
    rule passes where both outputs pass it, and the worse of the two is what the trial says of errors."""
    first = compare(got, want, limits, error_scale)
    if again is None:
        return first
    second = compare(again, want, limits, error_scale)
    worse = max((first, second), key=lambda trial: (trial.nonfinite, trial.units or 0.0, trial.largest or 0.0))
    passed = {rule: first.passed[rule] and second.passed[rule] for rule in first.passed}
    return dataclasses.replace(worse, passed=passed)


def worst(parts: Sequence[Compared]) -> Compared:
    """What a trial of several outputs contributes: a rule passes where all pass it, and the worst of them is what the
    trial says of errors."""
    if len(parts) == 1:
        return parts[0]
    lead = max(parts, key=lambda part: (part.nonfinite, part.units or 0.0, part.largest or 0.0))
    norms = [part.norms for part in parts if part.norms is not None]
    return dataclasses.replace(
        lead,
        elements=sum(part.elements for part in parts),
        passed={rule: all(part.passed.get(rule, False) for part in parts) for rule in lead.passed},
        norms={name: max(each[name] for each in norms) for name in rounding.NORMS} if norms else None,
        within={rule: sum(part.within[rule] for part in parts) for rule in TOLERANCES},
        bad=sum(part.bad for part in parts),
        largest=max((part.largest for part in parts if part.largest is not None), default=None),
        total=sum(part.total for part in parts),
        histogram=[sum(counts) for counts in zip(*(part.histogram for part in parts))],
    )


def chooses_alike(sources: Sequence[Array], got: Array, want: Array) -> bool:
    """Whether two arrays of indices choose the same elements of an input: of elements that are equal, which one is
    chosen is nobody's fault. Along any one axis, which may be missing in them, or of the input as a whole."""
    for source in sources:
        for axis in range(source.ndim):
            pair = [index.astype(np.intp) for index in (got, want)]
            if got.ndim == 0:
                source, axis, pair = source.reshape(-1), 0, [index.reshape(1) for index in pair]
            elif got.ndim == source.ndim - 1:
                pair = [np.expand_dims(index, axis) for index in pair]
            others = [[size for at, size in enumerate(each.shape) if at != axis] for each in (source, *pair)]
            within = all(((index >= 0) & (index < source.shape[axis])).all() for index in pair)
            if within and others[0] == others[1] == others[2]:
                one, other = (np.take_along_axis(source, index, axis) for index in pair)
                if np.array_equal(one, other):
                    return True
    return False


def apart(
    got: Array, again: Array, want: Array | None = None, error_scale: ErrorScale | None = None
) -> tuple[float, float | None]:
    """How far two outputs of one call lie from each other: (largest difference over what is finite in both; the same in
    units of rounding, where the truth is given)."""
    both = np.isfinite(got) & np.isfinite(again)
    difference = np.subtract(got, again, dtype=np.float64, where=both, out=np.zeros(got.shape))
    units = None
    if error_scale is not None and want is not None and want.shape == got.shape:
        rows = rounding.as_rows(difference)
        ruler = error_scale.ruler
        norms = ruler.norms(lambda r, c: ruler.rows[r, c] + rows[r, c])
        units = max(error_scale.units(norms).values())
    return (float(np.abs(difference).max()) if difference.size else 0.0), units


def _settle(
    got: Array,
    want: Array,
    difference: Array,
    finite: Array,
    error_scale: ErrorScale | None,
    limits: Mapping[str, float],
) -> Array:
    """Return which elements are wrong for being finite or not; set `difference` to zero where that is settled.

    The truth is infinite where it is so once it is rounded. Between the greatest finite number and that border, and
    within the rule's tolerance beyond it, an element may be finite or infinite. What arithmetic in the dtype loses in
    an intermediate step excuses no element.
    """
    rounded, either = want, np.zeros_like(finite)
    if error_scale is not None:
        ruler = error_scale.ruler
        rounded = np.where(np.abs(want) >= ruler.threshold, np.copysign(np.inf, want), want)
        beyond = ruler.threshold * (1 + limits["rounding"] * ruler.unit)
        near = (np.abs(want) > ruler.greatest) & (np.abs(want) <= beyond)
        either = near & ((got == np.copysign(np.inf, want)) | np.isfinite(got))
    differs = np.isfinite(got) != np.isfinite(rounded)
    same = ~np.isfinite(got) & ((got == rounded) | (np.isnan(got) & np.isnan(rounded)))
    bad: Array = (differs | ~(np.isfinite(got) | same)) & ~either
    difference[bad | ~finite | same] = 0.0
    return bad


def is_scaled(full: Array, small: Array, limits: Mapping[str, float], error_scale: ErrorScale) -> bool:
    """Whether `small` is `full` times one power of two, within what the rule of rounding lets pass. Arithmetic that
    neither overflows nor underflows gives the same digits to two questions whose answers are."""
    if not (np.isfinite(full).all() and np.any(full)):
        return False
    ratio = np.abs(small).max() / np.abs(full).max()
    if not 0 < ratio < np.inf:
        return False
    return compare(full * 2.0 ** round(np.log2(ratio)), small, limits, error_scale).passed["rounding"]


def histogram(difference: Array, beyond: int = 0) -> list[int]:
    """Elements by decade: zero, below 1e-8, 1e-7, ..., 1e0, then 1e0 and more, with `beyond` added to the last."""
    # Counting below each edge costs nine fast passes; sorting elements into bins costs ten times that.
    below = [int(np.count_nonzero(difference < edge)) for edge in EDGES]
    zero = int(difference.size - np.count_nonzero(difference))
    counts = [zero, below[0] - zero]
    counts += [right - left for left, right in zip(below, below[1:])]
    return [*counts, int(difference.size) - below[-1] + int(beyond)]


def _worst(got: Array, want: Array, at: int) -> tuple[list[int], list[float | None]]:
    index = [int(part) for part in np.unravel_index(at, got.shape)]
    values = [float(side.flat[at]) for side in (got, want)]
    return index, [value if np.isfinite(value) else None for value in values]


def combine(against: str, trials: Sequence[Compared]) -> wire.Agreement:
    """Of `compare`'s results, in the order of trials."""
    elements = sum(trial.elements for trial in trials)
    finite = sum(trial.finite for trial in trials)
    units = [trial.units for trial in trials]
    rules = trials[0].passed if trials else {}
    truth = "rounding" in rules
    return wire.Agreement(
        against=against,
        passed={rule: sum(trial.passed[rule] for trial in trials) for rule in sorted(rules)},
        max_abs=max((trial.largest for trial in trials if trial.largest is not None), default=None),
        mean_abs=sum(trial.total for trial in trials) / finite if finite else None,
        max_units=max((value for value in units if value is not None), default=None),
        units_per_trial=units if truth else [],
        mean_abs_per_trial=[trial.mean for trial in trials] if truth else [],
        norms=_norms(trials),
        within_strict_share=sum(trial.within["strict"] for trial in trials) / elements if elements else 0.0,
        nonfinite_trials=sum(trial.nonfinite for trial in trials),
        histogram=[sum(counts) for counts in zip(*(trial.histogram for trial in trials))],
        worst=_worst_of(trials),
    )


def _worst_of(trials: Sequence[Compared]) -> wire.Worst | None:
    """An element that is not finite is worse than any finite error."""

    def size(number: int) -> tuple[bool, float]:
        largest = trials[number].largest
        return trials[number].nonfinite, -1.0 if largest is None else largest

    number = max(range(len(trials)), key=size, default=0)
    at = trials[number].worst if trials else None
    return at and wire.Worst(number, at[0], *at[1])


def _norms(trials: Sequence[Compared]) -> Norms:
    """The largest of each norm, in units; empty where none is known."""
    known = [trial.norms for trial in trials if trial.norms is not None]
    return {name: max(units[name] for units in known) for name in rounding.NORMS} if known else {}
