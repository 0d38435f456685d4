"""One output against another, element by element, in float64; many trials folded into one `Agreement`.

Comparisons are written so that NaN and infinity cannot pass: an element that is not finite on one side only
fails every rule of its trial.
"""

import numpy as np

from . import rounding

EDGES = tuple(10.0**power for power in range(-8, 1))
TOLERANCES = ("kernelbench", "strict")


def compare(got, want, limits, yardstick=None):
    """What one trial contributes. `got` and `want` are float arrays of one shape.

    `yardstick` (`rounding.Yardstick`) is given where `want` is the truth: then the rule `rounding` applies too, and
    what the truth is once it is rounded decides what may be infinite.
    `strict` and `kernelbench` are ``|got - want| <= tolerance + tolerance * |want|`` for every element.
    """
    ruler = yardstick.ruler if yardstick else None
    left, right = rounding.as_rows(got), rounding.as_rows(want)
    sums = rounding.Sums(ruler) if ruler else None
    found = Counts()
    # What is infinite on one side is found by looking at the difference.
    with np.errstate(invalid="ignore", over="ignore"):
        for rows, columns in rounding.blocks(right.shape):
            ours, theirs = left[rows, columns], right[rows, columns]
            difference = np.subtract(ours, theirs, dtype=np.float64)
            finite = np.isfinite(difference)
            bad = None
            if not (finite.all() and (ruler is None or ruler.plain)):
                bad = _settle(ours, theirs, difference, finite, yardstick, limits, rows, columns)
                theirs = np.where(np.isfinite(theirs), theirs, 0.0)
            if ruler:
                counted = theirs if ruler.plain else np.where(np.abs(theirs) < ruler.threshold, theirs, 0.0)
                sums.add(rows, difference, counted)
            np.abs(difference, out=difference)
            found.add(difference, theirs, bad, limits, rows.start * right.shape[1] + columns.start)
    passed = {rule: not found.bad and found.within[rule] == right.size for rule in TOLERANCES}
    units = None
    if yardstick is not None:
        if not found.bad:
            units = yardstick.units(sums.norms())
        passed["rounding"] = units is not None and max(units.values()) <= limits["rounding"]
    return {
        "passed": passed,
        "units": None if units is None else max(units.values()),
        "norms": units,
        "within": found.within["strict"],
        "elements": right.size,
        "finite": right.size - found.bad,
        "max": found.largest,
        "sum": found.total,
        "nonfinite": found.bad > 0,
        "histogram": found.histogram,
        "worst": None if found.at is None else _worst(got, want, found.at, found.bad > 0),
    }


def compare_both(got, again, want, limits, yardstick=None):
    """The same of a trial that was run twice. `again` is the second run's output, None where it has the same bits. A
    rule passes where both outputs pass it, and the worse of the two is what the trial says of errors."""
    first = compare(got, want, limits, yardstick)
    if again is None:
        return first
    second = compare(again, want, limits, yardstick)
    worse = max((first, second), key=lambda trial: (trial["nonfinite"], trial["units"] or 0.0, trial["max"] or 0.0))
    passed = {rule: first["passed"][rule] and second["passed"][rule] for rule in first["passed"]}
    return dict(worse, passed=passed)


def apart(got, again, want=None, yardstick=None):
    """How far two outputs of one call lie from each other: (largest difference over what is finite in both; the same in
    units of rounding, where the truth is given)."""
    both = np.isfinite(got) & np.isfinite(again)
    difference = np.subtract(got, again, dtype=np.float64, where=both, out=np.zeros(got.shape))
    units = None
    if yardstick is not None and want.shape == got.shape:
        rows = rounding.as_rows(difference)
        norms = yardstick.ruler.norms(lambda r, c: yardstick.ruler.rows[r, c] + rows[r, c])
        units = max(yardstick.units(norms).values())
    return (float(np.abs(difference).max()) if difference.size else 0.0), units


class Counts:
    """What is counted of absolute differences, block by block; those of `bad` elements are zero, and not counted."""

    def __init__(self):
        self.within = dict.fromkeys(TOLERANCES, 0)
        self.bad, self.total, self.largest, self.at = 0, 0.0, None, None
        self.histogram = [0] * (len(EDGES) + 2)

    def add(self, difference, want, bad, limits, first):
        size = np.abs(want)
        for rule in TOLERANCES:
            limit = limits[rule]
            inside = difference <= limit + limit * size
            self.within[rule] += int(np.count_nonzero(inside if bad is None else inside & ~bad))
        if bad is not None and bad.any():
            if not self.bad:  # an element that is not finite is worse than any finite error
                self.at = first + int(np.argmax(bad))
            beyond = int(np.count_nonzero(bad))
            self.bad += beyond
            difference = difference[~bad]
        else:
            beyond = 0
        if difference.size:
            largest = float(difference.max())
            if not self.bad and (self.largest is None or largest > self.largest):
                self.at = first + int(np.argmax(difference))
            self.largest = largest if self.largest is None else max(self.largest, largest)
            self.total += float(difference.sum())
        self.histogram = [sum(pair) for pair in zip(self.histogram, histogram(difference, beyond))]


def _settle(got, want, difference, finite, yardstick, limits, rows, columns):
    """Which elements are wrong for being finite or not; in `difference` zero where that is settled.

    The truth is infinite where it is so once it is rounded; within the rule's tolerance of that border an element may
    be either, and so it may where straightforward arithmetic leaves the dtype's range on its way.
    """
    rounded, either = want, np.zeros_like(finite)
    if yardstick is not None:
        ruler = yardstick.ruler
        rounded = np.where(np.abs(want) >= ruler.threshold, np.copysign(np.inf, want), want)
        room = (limits["rounding"] * yardstick.costs["largest"] * ruler.row_largest[rows])[:, None]
        room = np.maximum(room, ruler.unit * ruler.threshold)
        near = np.abs(np.abs(want) - ruler.threshold) <= room if np.isfinite(ruler.threshold) else either
        either = near & ((got == np.copysign(np.inf, want)) | np.isfinite(got))
        if yardstick.either is not None:
            either |= yardstick.either[rows, columns] & ~np.isfinite(got)
    differs = np.isfinite(got) != np.isfinite(rounded)
    same = ~np.isfinite(got) & ((got == rounded) | (np.isnan(got) & np.isnan(rounded)))
    bad = (differs | ~(np.isfinite(got) | same)) & ~either
    difference[bad | ~finite | same] = 0.0
    return bad


def is_scaled(full, small, limits, yardstick):
    """Whether `small` is `full` times one power of two, within what the rule of rounding lets pass. Arithmetic that
    neither overflows nor underflows gives the same digits to two questions whose answers are."""
    if not (np.isfinite(full).all() and np.any(full)):
        return False
    ratio = np.abs(small).max() / np.abs(full).max()
    if not 0 < ratio < np.inf:
        return False
    return compare(full * 2.0 ** round(np.log2(ratio)), small, limits, yardstick)["passed"]["rounding"]


def histogram(difference, beyond=0):
    """Elements by decade: zero, below 1e-8, 1e-7, ..., 1e0, then 1e0 and more, with `beyond` added to the last."""
    # Counting below each edge costs nine fast passes; sorting elements into bins costs ten times that.
    below = [int(np.count_nonzero(difference < edge)) for edge in EDGES]
    zero = int(difference.size - np.count_nonzero(difference))
    counts = [zero, below[0] - zero]
    counts += [right - left for left, right in zip(below, below[1:])]
    return [*counts, int(difference.size) - below[-1] + int(beyond)]


def _mean(trial):
    return None if trial["nonfinite"] or not trial["finite"] else trial["sum"] / trial["finite"]


def _worst(got, want, at, nonfinite):
    index = [int(part) for part in np.unravel_index(at, got.shape)]
    values = [float(side.flat[at]) for side in (got, want)]
    return nonfinite, index, [value if np.isfinite(value) else None for value in values]


def combine(against, trials):
    """The `Agreement` of `compare`'s results, in the order of trials."""
    elements = sum(trial["elements"] for trial in trials)
    finite = sum(trial["finite"] for trial in trials)
    largest = [trial["max"] for trial in trials if trial["max"] is not None]
    units = [trial["units"] for trial in trials]
    rules = trials[0]["passed"] if trials else {}
    worst = None
    if trials and elements:
        # An element that is not finite is worse than any finite error.
        number = max(
            range(len(trials)),
            key=lambda i: (trials[i]["nonfinite"], trials[i]["max"] if trials[i]["max"] is not None else -1.0),
        )
        _, index, (got, want) = trials[number]["worst"]
        worst = {"trial": number, "index": index, "got": got, "want": want}
    known = [value for value in units if value is not None]
    truth = bool(trials) and "rounding" in rules
    return {
        "against": against,
        "passed": {rule: sum(trial["passed"][rule] for trial in trials) for rule in sorted(rules)},
        "max_abs": max(largest) if largest else None,
        "mean_abs": sum(trial["sum"] for trial in trials) / finite if finite else None,
        "max_units": max(known) if known else None,
        "units_per_trial": units if truth else [],
        "mean_abs_per_trial": [_mean(trial) for trial in trials] if truth else [],
        "norms": _norms(trials),
        "within_strict_share": sum(trial["within"] for trial in trials) / elements if elements else 0.0,
        "nonfinite_trials": sum(trial["nonfinite"] for trial in trials),
        "histogram": [sum(counts) for counts in zip(*(trial["histogram"] for trial in trials))],
        "worst": worst,
    }


def _norms(trials):
    """The largest of each norm, in units; empty where none is known."""
    known = [trial["norms"] for trial in trials if trial["norms"] is not None]
    return {name: max(units[name] for units in known) for name in rounding.NORMS} if known else {}
