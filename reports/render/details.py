"""What opens below a row: each observation of the baseline beside the same of this environment, as text. Pure."""

from __future__ import annotations

from collections.abc import Callable

from reports import model
from reports.compare.repeats import described
from reports.model import Comparison, Correctness, Latency
from reports.render import durations, formats


def facts(judged: Correctness) -> list[tuple[str, str, str]]:
    """Label, baseline, here: what both validation records say of one target."""
    sides = (judged.baseline, judged.this)

    def line(label: str, value: Callable[[model.CorrectnessSide], object]) -> tuple[str, str, str]:
        one, two = (str(value(side)) for side in sides)
        return label, one, two

    rule = judged.this.decides or judged.baseline.decides
    found = [
        line("Status", lambda side: formats.words(side.status) + (f": {side.message}" if side.message else "")),
        line(
            f"Trials that pass ({rule})",
            lambda side: f"{formats.rate_text(side.rate)} {formats.rate_interval(side.rate)}",
        ),
        line("Largest absolute error", lambda side: formats.number(side.max_abs)),
        line("Largest error, units (one: see Method)", lambda side: formats.number(side.max_units)),
        line("Judged as", lambda side: side.precision or durations.ABSENT),
        line("Known wrong answers that would pass here", lambda side: side.unseen or durations.ABSENT),
        line("Smallest faults that would have been seen", lambda side: side.smallest or durations.ABSENT),
    ]
    for name in dict.fromkeys([*sides[0].agreement, *sides[1].agreement]):
        rate = (judged.this.agreement.get(name) or judged.baseline.agreement[name]).rule
        found.append(
            line(
                f"Agreement with {name} ({rate})",
                lambda side, name=name: (  # type: ignore[misc]
                    f"{formats.rate_text(side.agreement.get(name))} {formats.rate_interval(side.agreement.get(name))}"
                ),
            )
        )
    found += [
        line("Nearer to", lambda side: ", ".join(f"{k} {v}" for k, v in side.nearer_to.items()) or durations.ABSENT),
        line("Operators that ran", lambda side: ", ".join(side.operators) or durations.ABSENT),
        line("Bits, run again on the same bytes", described),
        line(
            "Trials: NaN or infinity; inputs mutated; left unwritten",
            lambda side: f"{side.nonfinite_trials}; {side.inputs_mutated}; {side.unwritten_trials}",
        ),
    ]
    if any(side.choice for side in sides):
        found.append(line("The kernel's own choice", lambda side: side.choice or durations.ABSENT))
    recipes = dict.fromkeys(recipe.recipe for side in sides for recipe in side.recipes)
    found += [line(f"Inputs: {name}", lambda side, name=name: _recipe(side, name)) for name in recipes]  # type: ignore[misc]
    return [row for row in found if {text.strip() for text in row[1:]} != {durations.ABSENT}]


def _recipe(side: model.CorrectnessSide, name: str) -> str:
    found = next((recipe for recipe in side.recipes if recipe.recipe == name), None)
    if found is None:
        return durations.ABSENT
    rates = [f"{rate.rule} {formats.rate_text(rate)}" for rate in found.rates if rate.against == "truth"]
    parts = [
        ", ".join(rates),
        f"largest {formats.number(found.max_abs)}" if found.max_abs is not None else "",
        found.message,
        f"worst at {found.worst}" if found.worst else "",
    ]
    return "; ".join(part for part in parts if part)


Sided = list[tuple[str, Callable[[model.LatencySide], str]]]
TIMES: Sided = [
    ("Status", lambda s: formats.words(s.status) + (f": {s.message}" if s.message else "")),
    (
        "Median of launch medians",
        lambda s: (
            durations.time_text(s.median_us)
            if s.median_us is None
            else (formats.interval_text(s) + (" (of a wrong output)" if s.wrong_output else ""))
        ),
    ),
    ("Launch medians, by block", lambda s: ", ".join(durations.time_text(value) for value in s.medians_us) or "none"),
    ("Rates", lambda s: formats.rates_text(s.rates) if s.median_us else durations.ABSENT),
    ("Launches without these times; samples in all", lambda s: f"{s.failed_launches}; {s.samples}"),
]
ON_GPU: Sided = [
    ("Host's time to enqueue a call", lambda s: durations.time_text(s.gpu.enqueue_us if s.gpu else None)),
    ("SM clock while sampled", lambda s: f"{s.gpu.sm_mhz:.0f} MHz" if s.gpu and s.gpu.sm_mhz else "not recorded"),
    (
        "Samples left out for held-back clocks",
        lambda s: f"{s.gpu.throttled_samples} in {s.gpu.throttled_launches} launches" if s.gpu else durations.ABSENT,
    ),
    (
        "Samples under the power cap",
        lambda s: f"{s.gpu.capped_samples} in {s.gpu.capped_launches} launches" if s.gpu else durations.ABSENT,
    ),
]


def times(row: Comparison) -> list[tuple[str, str, str]]:
    """Label, baseline, here: cold, then hot, then what belongs to both."""
    found = []
    for mode, timed in modes(row):
        found += [
            (f"{mode.capitalize()}: {label}" if row.hot else label, value(timed.baseline), value(timed.this))
            for label, value in TIMES
        ]
    both: Sided = [*(ON_GPU if row.hot else []), ("Records", lambda s: s.record or durations.ABSENT)]
    return found + [(label, value(row.latency.baseline), value(row.latency.this)) for label, value in both]


def modes(row: Comparison) -> list[tuple[str, Latency]]:
    return list(zip((model.COLD, model.HOT), row.timed, strict=False))
