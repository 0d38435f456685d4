"""Figures of causes: small tables that can be checked at a glance. Pure.

Outputs are named by letters: the same letter, the same bits. A letter is given where it is first met in a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from string import ascii_uppercase

from harness.schema.experiment_records import ConditionResult
from harness.schema.records import Crossing
from harness.worker import protocol
from reports.attribute.cells import Cell
from reports.attribute.model import BAD, DIFFERENT, GOOD, PLAIN, SAME, Entry, Figure
from reports.attribute.observed import Spread, Swap
from reports.model import Latency, Rate
from reports.text import brief_time

ABSENT = Entry(text="\N{EM DASH}")
MOST_ROWS = 10


class Letters:
    """A, B, C ... for digests, in the order in which they are met."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, ...], str] = {}

    def of(self, outputs: Sequence[str]) -> str:
        name = ascii_uppercase[len(self.known)] if len(self.known) < len(ascii_uppercase) else f"#{len(self.known)}"
        return self.known.setdefault(tuple(outputs), name)


def rate_entry(passed: int, runs: int, also: str = "") -> Entry:
    if not runs:
        return ABSENT
    state = GOOD if passed == runs else BAD
    return Entry(text=f"{passed}/{runs}{also}", state=state, share=passed / runs)


def _output(result: ConditionResult, letters: Letters) -> Entry:
    """One letter for all trials, where every repeat of each gave the same bits."""
    if not result.output_sha256:
        return ABSENT
    if result.runs and result.nonfinite == result.runs:
        return Entry(text="NaN", state=DIFFERENT)
    if all(len(set(trial)) == 1 for trial in result.output_sha256):
        return Entry(text=letters.of([trial[0] for trial in result.output_sha256 if trial]))
    distinct = max(len(set(trial)) for trial in result.output_sha256)
    most = max(len(trial) for trial in result.output_sha256)
    return Entry(text=f"varies: {distinct} of {most}", state=DIFFERENT)


def condition_rows(results: Iterable[ConditionResult], letters: Letters) -> list[tuple[str, tuple[Entry, ...]]]:
    rows: list[tuple[str, tuple[Entry, ...]]] = []
    for result in list(results)[:MOST_ROWS]:
        error = f"{result.max_units:.3g}" if result.max_units is not None else "\N{EM DASH}"
        if result.nonfinite:
            error = f"NaN in {result.nonfinite}"
        rows.append(
            (
                result.condition.label or "as validated",
                (rate_entry(result.passed, result.runs), Entry(text=error), _output(result, letters)),
            )
        )
    return rows


CONDITIONS = ("Runs within tolerance", "Largest error (units)", "Output")


def conditions_figure(title: str, results: Iterable[ConditionResult], path: str) -> Figure:
    return Figure(title=title, columns=CONDITIONS, rows=tuple(condition_rows(results, Letters())), record=path)


def spread_figure(title: str, spread: Spread) -> Figure:
    return conditions_figure(f"{title}, in {spread.environment}", spread.results, spread.path)


def swap_figure(swap: Swap, base: str, this: str) -> Figure:
    letters = Letters()
    rows = []
    for code in (base, this):
        entries = []
        for place in (base, this):
            result = swap.cells.get((code, place))
            if result is None:
                entries.append(ABSENT)
                continue
            if not result.runs:
                entries.append(Entry(text=result.status.replace("_", " "), state=BAD))
                continue
            name = letters.of(result.output_sha256)
            state = GOOD if result.passed == result.runs else BAD
            entries.append(Entry(text=f"{name} \N{MIDDLE DOT} {result.passed}/{result.runs}", state=state))
        rows.append((f"object code from {code}", tuple(entries)))
    return Figure(
        title="The same object code in the other environment: output, and runs within tolerance",
        columns=(f"run in {base}", f"run in {this}"),
        rows=tuple(rows),
        record=swap.path,
    )


def _pair(pairs: Sequence[Crossing], one: str, two: str) -> Crossing | None:
    found = [pair for pair in pairs if {pair.left, pair.right} == {one, two}]
    return max(found, key=lambda pair: pair.max_abs or 0.0, default=None)


def _crossed(pairs: Sequence[Crossing], one: str, two: str) -> Entry:
    if one == two:
        return Entry(text="\N{MIDDLE DOT}")
    pair = _pair(pairs, one, two)
    if pair is None:
        return ABSENT
    if pair.identical_trials == pair.trials:
        return Entry(text="same bits", state=SAME)
    text = f"{pair.max_abs:.2g}" if pair.max_abs is not None else "not finite"
    return Entry(text=text, state=DIFFERENT)


def crossing_figure(cell: Cell, references: Sequence[str]) -> Figure | None:
    """Kernel and references of both environments against each other and the truth; None where nothing was crossed."""
    row = cell.row
    names = [(name, where) for name in (protocol.KERNEL, *references) for where in (row.baseline, row.environment)]
    owners = [f"{where}:{name}" for name, where in names]
    if not any(_pair(cell.pairs, one, two) for one in owners for two in (*owners, protocol.TRUTH) if one != two):
        return None
    short = {row.baseline: "baseline", row.environment: "here"}
    labels = [f"{name}, {short[where]}" for name, where in names]
    return Figure(
        title=f"Largest difference between stored outputs, {row.workload}",
        columns=(*labels, "truth"),
        rows=tuple(
            (label, tuple(_crossed(cell.pairs, owner, other) for other in (*owners, protocol.TRUTH)))
            for label, owner in zip(labels, owners, strict=True)
        ),
        record=cell.evidence.crossing_pointer(cell.kernel, row.device, row.workload),
    )


def _rate(rate: Rate | None, units: float | None) -> Entry:
    if rate is None:
        return ABSENT
    also = f" \N{MIDDLE DOT} {units:.3g} units" if units is not None else ""
    return rate_entry(rate.passed, rate.trials, also)


def recipes_figure(cell: Cell) -> Figure:
    """Trials within tolerance and the largest error, by the kind of inputs."""
    base, this = cell.sides
    names = dict.fromkeys(recipe.recipe for side in cell.sides for recipe in side.recipes)
    shown = {
        (name, number): next((recipe for recipe in side.recipes if recipe.recipe == name), None)
        for name in names
        for number, side in enumerate((base, this))
    }
    rows = []
    for name in names:
        entries = []
        for number in (0, 1):
            recipe = shown[name, number]
            entries.append(_rate(cell.passing(name, number), recipe.max_units if recipe else None))
        rows.append((f"{name.replace('_', ' ')} inputs", tuple(entries)))
    return Figure(
        title=f"Trials within tolerance, {cell.workload}",
        columns=("baseline", "here") if not cell.row.alone else ("baseline", "again"),
        rows=tuple(rows),
        record=cell.record,
    )


def cells_figure(title: str, cells: Sequence[Cell]) -> Figure:
    """One row for each workload: pass rates and errors on both sides."""
    rows = [
        (cell.workload, tuple(_rate(side.rate, side.max_units) for side in cell.sides)) for cell in cells[:MOST_ROWS]
    ]
    return Figure(title=title, columns=("baseline", "here"), rows=tuple(rows), record=cells[0].record)


def ratio_entry(timed: Latency, reach: float) -> Entry:
    if timed.ratio is None:
        return ABSENT
    interval = f" [{timed.low:.2f}, {timed.high:.2f}]" if timed.low is not None and timed.high is not None else ""
    state = {"regressed": BAD, "improved": GOOD}.get(timed.verdict, PLAIN)
    share = math.log(timed.ratio) / reach if reach else 0.0
    return Entry(text=f"{timed.ratio:.2f}\N{MULTIPLICATION SIGN}{interval}", state=state, share=share)


def ratios_figure(title: str, timed: Sequence[tuple[str, Latency]]) -> Figure:
    reach = max((abs(math.log(each.ratio)) for _, each in timed if each.ratio), default=0.0)
    rows = []
    for label, each in timed[:MOST_ROWS]:
        one, two = each.baseline.median_us, each.this.median_us
        entries = [Entry(text=_us(one)), Entry(text=_us(two)), ratio_entry(each, reach)]
        rows.append((label, tuple(entries)))
    return Figure(title=title, columns=("baseline", "here", "ratio"), rows=tuple(rows))


def _us(value: float | None) -> str:
    return "\N{EM DASH}" if value is None else brief_time(value)
