"""The page's tables of comparisons: columns, sort keys, and what opens below each row. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from typing import Any

from markupsafe import Markup

from reports import model, text
from reports.compare.rows import leading_time, significance
from reports.model import Comparison, Latency
from reports.render.report import Report
from reports.render.templating import pack

# A table of more rows than this has only its first in the HTML: opening must not wait for rows out of sight.
SERVER_ROWS = 150
FIRST_ROWS = 40
CHUNK_ROWS = 200  # of those out of sight, unpacked together
LEAST_REACH, MOST_REACH = math.log(1.1), math.log(4)  # of the axis of ratios, to either side
SHARED = ("Target", "Workload", "Device", "Environment")
# Each column's heading, and the fact that it sorts by: a path into what the table judges.
COLUMNS = {
    "correctness": {
        "Verdict": "verdict",
        "Trials within tolerance": "this.rate.share",
        "Largest error (rounding units)": "this.max_units",
        "Agrees with references (allclose)": "this.least_agreement",
        "Output bits": "bits.identical",
    },
    "latency": {
        "Verdict": "verdict",
        "Ratio": "ratio",
        "Launch medians": "spread",
        "Median": "this.median_us",
        "FLOP/s": "this.rates.tflops",
        "Launches": "this.blocks",
        "Smallest effect": "smallest_effect",
    },
    "memory": {
        "Verdict": "verdict",
        "Ratio": "ratio",
        "Peak": "this.peak_bytes",
        "Kept": "this.kept_bytes",
        "Launches": "this.blocks",
    },
}


def judged(row: Comparison, table: str) -> Any:
    """Return what a table shows of a row."""
    return leading_time(row)[1] if table == "latency" else getattr(row, table)


def _sort_keys(rows: Sequence[Comparison], table: str, path: str) -> list[Any]:
    """Return what each row is sorted by, None where it was not measured: numbers, ranks of verdicts, sizes of lists."""
    values = [reduce(lambda at, name: getattr(at, name, None), path.split("."), judged(row, table)) for row in rows]
    if path == "verdict":
        return [model.VERDICTS.index(value) for value in values]
    return [len(value) if isinstance(value, list) else value for value in values]


def tables(report: Report, macros: Any) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the first rows of each table as HTML with the others packed in chunks, and the index by which the page's
    script filters and sorts, a list for each column. `macros`: those of rows.html.j2."""
    rows = sorted(report.rows, key=significance)
    shared = {name.lower(): _column(getattr(row, name.lower()) for row in rows) for name in SHARED}
    hidden = {name for name in ("Environment", "Device") if len(set(shared[name.lower()]["at"])) <= 1}
    rates = [side.rates.tflops for row in rows for timed in row.timed for side in (timed.baseline, timed.this)]
    if not any(rates) or all(row.hot for row in rows):
        hidden.add("FLOP/s")  # unknown; or a section of their own shows rates, beside the device's peaks
    index: dict[str, Any] = {
        "rows": {"id": [row.id for row in rows], "kind": _column(row.kind for row in rows), **shared}
    }
    made = {}
    for name, columns in COLUMNS.items():
        if name == "memory" and not report.has_memory:
            continue
        keys = {column: _sort_keys(rows, name, path) for column, path in columns.items() if column not in hidden}
        order = sorted(range(len(rows)), key=keys["Verdict"].__getitem__)
        ordered = [rows[number] for number in order]
        first = SERVER_ROWS if len(rows) <= SERVER_ROWS else FIRST_ROWS
        shown = [*(column for column in SHARED if column not in hidden), *keys]
        render = partial(_render_rows, report, macros, name, hidden, len(shown))
        chunks = (ordered[start : start + CHUNK_ROWS] for start in range(first, len(rows), CHUNK_ROWS))
        made[name] = {
            "columns": shown,
            "body": [Markup("").join(pair) for pair in zip(*render(ordered[:first]), strict=True)],
            "chunks": [tuple(map(pack, render(chunk))) for chunk in chunks],
            "total": len(rows),
        }
        verdicts = _column(judged(row, name).verdict for row in rows)
        keys = {column: _column(values) for column, values in keys.items()}
        index[name] = {"first": first, "size": CHUNK_ROWS, "order": order, "verdict": verdicts, "keys": keys}
    return made, index


def _render_rows(
    report: Report, macros: Any, table: str, hidden: set[str], span: int, rows: Sequence[Comparison]
) -> tuple[list[str], list[str]]:
    """Return the HTML of these rows, and of what opens below them."""
    render, detail = getattr(macros, f"{table}_row"), getattr(macros, f"{table}_detail")
    causes = ([each for each in report.by_row.get(row.id, []) if each[1].about == table] for row in rows)
    opened = [detail(row, span, each) for row, each in zip(rows, causes, strict=True)]
    return [render(row, hidden) for row in rows], opened


def _column(values: Iterable[Any]) -> Any:
    """Return numbers, shortened; of text each word once, and where it stands."""
    found = [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]
    if not any(isinstance(value, str) for value in found):
        return found
    words = {word: number for number, word in enumerate(dict.fromkeys(found))}
    return {"words": list(words), "at": [words[value] for value in found]}


def modes(row: Comparison) -> list[tuple[str, Latency]]:
    return [(text.mode_text(row, mode), timed) for mode, timed in row.modes.items()]


def time_reach(rows: Iterable[Comparison]) -> float:
    """Return half the width of the axis on which all these rows' ratios of times are drawn."""
    return axis_reach(bound for row in rows for timed in row.timed for bound in (timed.low, timed.high))


def axis_reach(ratios: Iterable[float | None]) -> float:
    """Return half the width of a logarithmic axis that all of a page share: all fit, up to a factor of four."""
    return min(MOST_REACH, max([LEAST_REACH, *(abs(math.log(ratio)) for ratio in ratios if ratio)]))
