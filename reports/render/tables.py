"""The page's tables of comparisons: columns, sort keys, and what opens below each row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from reports import model, text
from reports.compare.properties import repeat_text
from reports.compare.rows import leading_time, significance
from reports.model import Comparison, Correctness, CorrectnessSide, Judged, Latency, LatencySide, MemorySide
from reports.render import pictures
from reports.render.report import Report
from reports.render.templating import pack
from reports.text import ABSENT

# A table of more rows than this has only its first in the HTML: opening must not wait for rows out of sight.
SERVER_ROWS = 150
FIRST_ROWS = 40
CHUNK_ROWS = 200  # of those out of sight, unpacked together
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
        "Agrees with references (allclose)": lambda row: min(
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
    "memory": {
        **SHARED,
        "Verdict": lambda row: _rank(row.memory.verdict),
        "Ratio": lambda row: row.memory.ratio,
        "Peak": lambda row: row.memory.this.peak_bytes,
        "Kept": lambda row: row.memory.this.kept_bytes,
        "Launches": lambda row: len(row.memory.this.blocks),
    },
}


def _verdict(row: Comparison, table: str) -> str:
    judged: Correctness | Judged = _time(row) if table == "latency" else getattr(row, table)
    return judged.verdict


def tables(report: Report, macros: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Per table: the first rows as HTML, and the others packed in chunks, apart from what opens below them. And what
    all are filtered and sorted by, a list for each column. `macros`: those of rows.html.j2."""
    rows = sorted(report.rows, key=significance)
    bounds = [bound for row in rows for timed in row.timed for bound in (timed.low, timed.high)]
    in_memory = pictures.reach(bound for row in rows for bound in (row.memory.low, row.memory.high))
    extra: dict[str, tuple[float, ...]] = {
        "correctness": (),
        "latency": (pictures.reach(bounds),),
        "memory": (in_memory,),
    }
    hidden = {name for name in ("Environment", "Device") if len({SHARED[name](row) for row in rows}) <= 1}
    counted = any(timed.this.rates.tflops or timed.baseline.rates.tflops for row in rows for timed in row.timed)
    if not counted or all(row.hot for row in rows):
        hidden.add("FLOP/s")  # unknown; or a section of their own shows rates, beside the device's peaks
    shared = {name.lower(): _column(map(key, rows)) for name, key in SHARED.items()}
    index: dict[str, Any] = {"rows": {"id": [r.id for r in rows], "kind": _column(r.kind for r in rows), **shared}}
    found = {}
    for name, columns in COLUMNS.items():
        if name == "memory" and not report.has_memory:
            continue
        shown = {column: key for column, key in columns.items() if column not in hidden}
        order = sorted(range(len(rows)), key=lambda number: _rank(_verdict(rows[number], name)))
        first = SERVER_ROWS if len(rows) <= SERVER_ROWS else FIRST_ROWS
        parts = partial(_parts, report, macros, name, (hidden, *extra[name]), len(shown))
        ordered = [rows[number] for number in order]
        chunks = (ordered[start : start + CHUNK_ROWS] for start in range(first, len(rows), CHUNK_ROWS))
        found[name] = {
            "columns": list(shown),
            "body": [Markup("").join(pair) for pair in zip(*parts(ordered[:first]), strict=True)],
            "chunks": [tuple(map(pack, parts(chunk))) for chunk in chunks],
            "total": len(rows),
        }
        index[name] = {
            "first": first,
            "size": CHUNK_ROWS,
            "order": order,
            "verdict": _column(_verdict(row, name) for row in rows),
            "keys": {column: _column(map(key, rows)) for column, key in shown.items() if column not in SHARED},
        }
    return found, index


def _parts(
    report: Report, macros: Any, table: str, given: tuple[Any, ...], span: int, rows: Sequence[Comparison]
) -> tuple[list[str], list[str]]:
    """HTML of these rows, and of what opens below them."""
    render, detail = getattr(macros, f"{table}_row"), getattr(macros, f"{table}_detail")
    causes = ([each for each in report.by_row.get(row.id, []) if each[1].about == table] for row in rows)
    opened = [detail(row, span, each) for row, each in zip(rows, causes, strict=True)]
    return [render(row, *given) for row in rows], opened


def _column(values: Iterable[Any]) -> Any:
    """Numbers, shortened; of text each word once, and where it stands."""
    found = [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]
    if not any(isinstance(value, str) for value in found):
        return found
    words = {word: number for number, word in enumerate(dict.fromkeys(found))}
    return {"words": list(words), "at": [words[value] for value in found]}


def correctness_facts(judged: Correctness) -> list[tuple[str, str, str]]:
    """Label, baseline, here: what both validation records say of one target."""
    sides = (judged.baseline, judged.this)
    rules = {name: rate.rule for side in sides for name, rate in side.agreement.items()}
    recipes = dict.fromkeys(recipe.recipe for side in sides for recipe in side.recipes)
    outputs = dict.fromkeys(output.name for side in sides for output in side.outputs)

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
            **{f"Output: {name}" if name else "Output": _output(side, name) for name in outputs},
        }

    lines = zip(values(sides[0]).items(), values(sides[1]).values(), strict=True)
    found = [(label, one or ABSENT, two or ABSENT) for (label, one), two in lines]
    return [line for line in found if line[1:] != (ABSENT, ABSENT)]


def _status(side: model.Side) -> str:
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


def _output(side: CorrectnessSide, name: str) -> str:
    found = next((output for output in side.outputs if output.name == name), None)
    if found is None:
        return ABSENT
    error = "" if found.max_units is None else f"; {text.number(found.max_units)} units"
    bits = f"; bits {found.sha256[0][:8]} of the first trial" if found.sha256 else ""
    return f"{found.dtype} {list(found.shape)}, {found.layout}{error}{bits}"


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


def latency_facts(row: Comparison) -> list[tuple[str, str, str]]:
    """Label, baseline, here: of each mode, then what belongs to all."""
    shown = [
        (f"{mode.capitalize()}: {label}" if mode else label, fact, timed)
        for mode, timed in modes(row)
        for label, fact in TIMES.items()
    ]
    both = {**(ON_GPU if row.hot else {}), **RECORDS}
    shown += [(label, fact, row.latency) for label, fact in both.items()]
    return [(label, fact(timed.baseline), fact(timed.this)) for label, fact, timed in shown]


OfMemory = Callable[[MemorySide], str]
USED: dict[str, OfMemory] = {
    "Status": _status,
    "Peak, median of the launches": lambda side: text.bytes_text(side.peak_bytes),
    "Peaks, by block": lambda side: ", ".join(map(text.bytes_text, side.peaks_bytes)) or "none",
    "Kept when the calls were over, part of the peak": lambda side: text.bytes_text(side.kept_bytes),
    "Records": lambda side: side.record or ABSENT,
}
USED_ON_GPU: dict[str, OfMemory] = {
    "Reserved by PyTorch's allocator (no verdict)": lambda side: text.bytes_text(side.reserved_bytes),
    "Outside of PyTorch's allocator when the calls were over, loaded code included (no verdict)": lambda side: (
        text.bytes_text(side.outside_bytes)
    ),
}


def memory_facts(row: Comparison) -> list[tuple[str, str, str]]:
    """Label, baseline, here."""
    shown = {**USED, **(USED_ON_GPU if row.device == "cuda" else {})}
    return [(label, fact(row.memory.baseline), fact(row.memory.this)) for label, fact in shown.items()]


def modes(row: Comparison) -> list[tuple[str, Latency]]:
    return [(text.mode_text(row, mode), timed) for mode, timed in row.modes.items()]
