"""The page's two tables of comparisons: columns, sort keys, and what opens below each row. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from reports import model, text
from reports.compare.properties import repeat_text
from reports.compare.rows import leading_time, significance
from reports.model import Comparison, Correctness, CorrectnessSide, Latency, LatencySide
from reports.render import pictures
from reports.render.report import Report
from reports.text import ABSENT

# A table of more rows than this has only its first in the HTML: opening must not wait for rows out of sight.
SERVER_ROWS = 150
FIRST_ROWS = 40
Key = Callable[[Comparison], Any]


def _rank(verdict: str) -> int:
    return model.VERDICTS.index(verdict)


def _time(row: Comparison) -> Latency:
    return leading_time(row)[1]


def _bits(row: Comparison) -> float | None:
    bits = row.correctness.bits
    return bits.identical / bits.compared if bits.compared else None


# Each column's heading and what it sorts by.
SHARED: dict[str, Key] = {
    "Target": lambda row: row.target,
    "Workload": lambda row: row.workload,
    "Device": lambda row: row.device,
    "Environment": lambda row: row.environment,
}
COLUMNS: dict[str, dict[str, Key]] = {
    "correctness": {
        **SHARED,
        "Verdict": lambda row: _rank(row.correctness.verdict),
        "Trials within tolerance": lambda row: row.correctness.this.rate and row.correctness.this.rate.share,
        "Largest error (rounding units)": lambda row: row.correctness.this.max_units,
        "Agrees with references": lambda row: min(
            (rate.share for rate in row.correctness.this.agreement.values()), default=None
        ),
        "Output bits": _bits,
    },
    "latency": {
        **SHARED,
        "Verdict": lambda row: _rank(_time(row).verdict),
        "Ratio": lambda row: _time(row).ratio,
        "Launch medians": lambda row: _time(row).spread,
        "Median": lambda row: _time(row).this.median_us,
        "FLOP/s": lambda row: _time(row).this.rates.tflops,
        "Launches": lambda row: len(_time(row).this.medians_us),
        "Smallest effect": lambda row: _time(row).smallest_effect,
    },
}


def _verdict(row: Comparison, table: str) -> str:
    return row.correctness.verdict if table == "correctness" else _time(row).verdict


def tables(report: Report, macros: Any) -> dict[str, dict[str, Any]]:
    """Per table: the first rows as HTML, the index of all with the HTML of the others, and what opens below those.
    `macros`: those of rows.html.j2."""
    rows = sorted(report.rows, key=significance)
    bounds = [bound for row in rows for timed in row.timed for bound in (timed.low, timed.high)]
    extra: dict[str, tuple[float, ...]] = {"correctness": (), "latency": (pictures.reach(bounds),)}
    hidden = {name for name in ("Environment", "Device") if len({SHARED[name](row) for row in rows}) <= 1}
    if all(row.hot for row in rows):
        hidden.add("FLOP/s")  # a section of their own shows rates, beside the device's peaks
    found = {}
    for name, columns in COLUMNS.items():
        render, detail = getattr(macros, f"{name}_row"), getattr(macros, f"{name}_detail")
        ordered = sorted(rows, key=lambda row: _rank(_verdict(row, name)))
        shown = {column: key for column, key in columns.items() if column not in hidden}
        index, body, details = [], [], {}
        first = SERVER_ROWS if len(ordered) <= SERVER_ROWS else FIRST_ROWS
        for position, row in enumerate(ordered):
            causes = [each for each in report.by_row.get(row.id, []) if each[1].about == name]
            html = render(row, hidden, *extra[name]), detail(row, len(shown), causes)
            item = {
                "id": f"{name}/{row.id}",
                "verdict": _verdict(row, name),
                "environment": row.environment,
                "kind": row.kind,
                "keys": [_sortable(key(row)) for key in shown.values()],
                "text": " ".join((row.target, row.kind, row.workload, row.device, row.environment)).lower(),
            }
            if position < first:
                body.append(Markup("").join(html))
            else:
                item["html"], details[item["id"]] = html
            index.append(item)
        found[name] = {"columns": list(shown), "body": body, "index": index, "details": details, "total": len(ordered)}
    return found


def _sortable(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def facts(judged: Correctness) -> list[tuple[str, str, str]]:
    """Label, baseline, here: what both validation records say of one target."""
    sides = (judged.baseline, judged.this)
    rules = {name: rate.rule for side in sides for name, rate in side.agreement.items()}
    recipes = dict.fromkeys(recipe.recipe for side in sides for recipe in side.recipes)

    def values(side: CorrectnessSide) -> dict[str, str]:
        return {
            "Status": _status(side),
            f"Trials that pass ({judged.this.decides or judged.baseline.decides})": _rate(side.rate),
            "Largest absolute error": text.number(side.max_abs),
            "Largest error, in rounding units (see Method)": text.number(side.max_units),
            "Judged as": side.precision,
            "Known wrong answers that would pass": side.unseen,
            "Smallest faults that would be detected": side.smallest,
            **{f"Agreement with {name} ({rule})": _rate(side.agreement.get(name)) for name, rule in rules.items()},
            "Nearer to": ", ".join(f"{name} {count}" for name, count in side.nearer_to.items()),
            "Operators that ran": ", ".join(side.operators),
            "Bits of a second run on the same bytes": repeat_text(side),
            "Trials with NaN or infinity; with changed inputs; with unwritten output": (
                f"{side.nonfinite_trials}; {side.inputs_mutated}; {side.unwritten_trials}"
            ),
            "The kernel's own choice": side.choice,
            **{f"Inputs: {name}": _recipe(side, name) for name in recipes},
        }

    lines = zip(values(sides[0]).items(), values(sides[1]).values(), strict=True)
    found = [(label, one or ABSENT, two or ABSENT) for (label, one), two in lines]
    return [line for line in found if line[1:] != (ABSENT, ABSENT)]


def _status(side: CorrectnessSide | LatencySide) -> str:
    return text.words(side.status) + (f": {side.message}" if side.message else "")


def _rate(rate: model.Rate | None) -> str:
    return f"{text.rate_text(rate)} {text.rate_interval(rate)}".strip()


def _recipe(side: CorrectnessSide, name: str) -> str:
    found = next((recipe for recipe in side.recipes if recipe.recipe == name), None)
    if found is None:
        return ABSENT
    rates = [f"{rate.rule} {text.rate_text(rate)}" for rate in found.rates if rate.against == "truth"]
    parts = [
        ", ".join(rates),
        f"largest {text.number(found.max_abs)}" if found.max_abs is not None else "",
        found.message,
        f"worst at {found.worst}" if found.worst else "",
    ]
    return "; ".join(part for part in parts if part)


def _median(side: LatencySide) -> str:
    if side.median_us is None:
        return ABSENT
    return text.interval_text(side) + (" (of a wrong output)" if side.wrong_output else "")


Fact = Callable[[LatencySide], str]
TIMES: dict[str, Fact] = {
    "Status": _status,
    "Median of launch medians": _median,
    "Launch medians, by block": lambda side: ", ".join(map(text.time_text, side.medians_us)) or "none",
    "Rates": lambda side: text.rates_text(side.rates) if side.median_us else ABSENT,
    "Launches without these times; samples in all": lambda side: f"{side.failed_launches}; {side.samples}",
}
ON_GPU: dict[str, Fact] = {
    "Host time to enqueue a call": lambda side: text.time_text(side.gpu.enqueue_us if side.gpu else None),
    "SM clock while sampled": lambda side: (
        f"{side.gpu.sm_mhz:.0f} MHz" if side.gpu and side.gpu.sm_mhz else "not recorded"
    ),
    "Throttled samples, discarded": lambda side: (
        f"{side.gpu.throttled_samples} in {side.gpu.throttled_launches} launches" if side.gpu else ABSENT
    ),
    "Samples under the power cap": lambda side: (
        f"{side.gpu.capped_samples} in {side.gpu.capped_launches} launches" if side.gpu else ABSENT
    ),
}
RECORDS: dict[str, Fact] = {"Records": lambda side: side.record or ABSENT}


def times(row: Comparison) -> list[tuple[str, str, str]]:
    """Label, baseline, here: cold, then hot, then what belongs to both."""
    shown = [
        (f"{mode.capitalize()}: {label}" if row.hot else label, fact, timed)
        for mode, timed in modes(row)
        for label, fact in TIMES.items()
    ]
    both = {**(ON_GPU if row.hot else {}), **RECORDS}
    shown += [(label, fact, row.latency) for label, fact in both.items()]
    return [(label, fact(timed.baseline), fact(timed.this)) for label, fact, timed in shown]


def modes(row: Comparison) -> list[tuple[str, Latency]]:
    return list(zip((model.COLD, model.HOT), row.timed, strict=False))
