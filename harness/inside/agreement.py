"""One output against another, element by element, in float64; many trials folded into one `Agreement`.

Comparisons are written so that NaN and infinity cannot pass: an element that is not finite on one side only
fails every rule of its trial.
"""

import numpy as np

from . import rounding

EDGES = tuple(10.0**power for power in range(-8, 1))


def compare(got, want, limits, cost=None):
    """What one trial contributes. `got` and `want` are float arrays of one shape.

    `cost` (`rounding.cost`) is given where `want` is the truth: then the rule `rounding` applies too.
    `strict` and `kernelbench` are ``|got - want| <= tolerance + tolerance * |want|`` for every element.
    """
    # What is infinite on one side is found by looking at the difference.
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(np.subtract(got, want, dtype=np.float64))
    finite = np.isfinite(difference)
    bad = None
    if not finite.all():
        same = ~finite & ((got == want) | (np.isnan(got) & np.isnan(want)))
        difference[same] = 0.0
        bad = ~(finite | same)
        bad = bad if bad.any() else None
    passed, within = {}, 0
    size = np.abs(np.where(np.isfinite(want), want, 0.0) if bad is not None or not finite.all() else want)
    for rule in ("kernelbench", "strict"):
        limit = limits[rule]
        count = int(np.count_nonzero(difference <= limit + limit * size))
        passed[rule] = bad is None and count == difference.size
        within = count  # of the last rule, strict
    units = None
    if cost is not None:
        if bad is None:
            units = rounding.error(difference, rounding.row_scales(np.asarray(want, dtype=np.float64))) / cost
        passed["rounding"] = units is not None and units <= limits["rounding"]
    counted = difference if bad is None else difference[~bad]
    at = int(np.argmax(difference if bad is None else bad)) if difference.size else None
    return {
        "passed": passed,
        "units": units,
        "within": within,
        "elements": int(difference.size),
        "finite": int(counted.size),
        "max": float(counted.max()) if counted.size else None,
        "sum": float(counted.sum()),
        "nonfinite": bad is not None,
        "histogram": histogram(counted, difference.size - counted.size),
        "worst": None if at is None else _worst(got, want, at, bad is not None),
    }


def compare_both(got, again, want, limits, cost=None):
    """The same of a trial that was run twice. `again` is the second run's output, None where it has the same bits. A
    rule passes where both outputs pass it, and the worse of the two is what the trial says of errors."""
    first = compare(got, want, limits, cost)
    if again is None:
        return first
    second = compare(again, want, limits, cost)
    worse = max((first, second), key=lambda trial: (trial["nonfinite"], trial["units"] or 0.0, trial["max"] or 0.0))
    passed = {rule: first["passed"][rule] and second["passed"][rule] for rule in first["passed"]}
    return dict(worse, passed=passed)


def apart(got, again, want=None, cost=None):
    """How far two outputs of one call lie from each other: (largest difference over what is finite in both; the same in
    units of rounding, where the truth is given)."""
    both = np.isfinite(got) & np.isfinite(again)
    difference = np.abs(np.subtract(got, again, dtype=np.float64, where=both, out=np.zeros(got.shape)))
    units = None
    if cost is not None and want.shape == got.shape and np.isfinite(want).all():
        units = rounding.error(difference, rounding.row_scales(np.asarray(want, dtype=np.float64))) / cost
    return (float(difference.max()) if difference.size else 0.0), units


def is_scaled(full, small, limits, cost):
    """Whether `small` is `full` times one power of two, within what the rule of rounding lets pass. Arithmetic that
    neither overflows nor underflows gives the same digits to two questions whose answers are."""
    if not (np.isfinite(full).all() and np.any(full)):
        return False
    ratio = np.abs(small).max() / np.abs(full).max()
    if not 0 < ratio < np.inf:
        return False
    return compare(full * 2.0 ** round(np.log2(ratio)), small, limits, cost)["passed"]["rounding"]


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
        "within_strict_share": sum(trial["within"] for trial in trials) / elements if elements else 0.0,
        "nonfinite_trials": sum(trial["nonfinite"] for trial in trials),
        "histogram": [sum(counts) for counts in zip(*(trial["histogram"] for trial in trials))],
        "worst": worst,
    }
