"""Figures of causes: small tables that can be checked at a glance. Pure.

Outputs are named by letters: the same letter, the same bits. A letter is given where it is first met in a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from string import ascii_uppercase

from harness.schema.experiment_records import ConditionResult
from harness.schema.records import Crossing
from harness.worker import protocol
from reports.attribute.causes import BAD, DIFFERENT, GOOD, PLAIN, SAME, Entry, Figure
from reports.attribute.cells import CellFacts, backends
from reports.attribute.experiments import LengthTrials, Spread
from reports.attribute.profiles import LINES_SHOWN, LinesRun, OperatorChange, Profiles
from reports.attribute.times import TimeChange
from reports.attribute.trials import Exchange, Ran, Varied
from reports.model import Judged, Latency, Memory, Rate
from reports.text import brief_time, bytes_text, function_name, mode_text

ABSENT = Entry(text="\N{EM DASH}")
OPERATORS_SHOWN = 8
SIZES = ("head_dim", "batch", "heads", "seq_len")


Letters = dict[tuple[str, ...], str]


def _letter(known: Letters, outputs: Sequence[str]) -> str:
    """A, B, ... Z, A2, B2 ... for digests, in the order in which they are met."""
    turn, place = divmod(len(known), len(ascii_uppercase))
    return known.setdefault(tuple(outputs), ascii_uppercase[place] + (str(turn + 1) if turn else ""))


Rows = Iterable[tuple[str, Iterable[Entry]]]


def _figure(title: str, columns: Iterable[str], rows: Rows, record: str | None = None) -> Figure:
    made = tuple((label, tuple(entries)) for label, entries in rows)
    return Figure(title=title, columns=tuple(columns), rows=made, record=record)


def rate_entry(passed: int, runs: int, also: str = "") -> Entry:
    if not runs:
        return ABSENT
    return Entry(text=f"{passed}/{runs}{also}", state=GOOD if passed == runs else BAD, share=passed / runs)


def _output(result: ConditionResult, letters: Letters) -> Entry:
    """One letter for all trials, where every repeat of each gave the same bits."""
    if not result.output_sha256:
        return ABSENT
    if result.runs and result.nonfinite == result.runs:
        return Entry(text="NaN", state=DIFFERENT)
    if all(len(set(trial)) == 1 for trial in result.output_sha256):
        return Entry(text=_letter(letters, [trial[0] for trial in result.output_sha256 if trial]))
    distinct = max(len(set(trial)) for trial in result.output_sha256)
    most = max(len(trial) for trial in result.output_sha256)
    return Entry(text=f"{distinct} outputs in {most} runs", state=DIFFERENT)


def conditions_figure(title: str, results: Iterable[ConditionResult], path: str) -> Figure:
    letters: Letters = {}
    rows = []
    for result in results:
        error = f"{result.max_units:.3g}" if result.max_units is not None else "\N{EM DASH}"
        if result.nonfinite:
            error = f"NaN in {result.nonfinite}"
        entries = [rate_entry(result.passed, result.runs), Entry(text=error), _output(result, letters)]
        rows.append((result.condition.label or "as validated", entries))
    return _figure(title, ("Runs within tolerance", "Largest error (rounding units)", "Output"), rows, path)


def spread_figure(title: str, spread: Spread) -> Figure:
    return conditions_figure(f"{title}, in {spread.environment}", spread.results, spread.path)


def inputs_figure(cell: CellFacts) -> Figure | None:
    """The first environment's runs on other inputs."""
    for conditions in cell.of("inputs"):
        return conditions_figure(f"By the inputs, {cell.workload}", conditions.ran, conditions.path)
    return None


def lengths_figure(lengths: LengthTrials) -> Figure:
    conditions = lengths.conditions
    results = sorted(conditions.ran, key=lambda result: [getattr(result.condition, name) for name in SIZES])
    return conditions_figure(f"By size, {conditions.record.workload}", results, conditions.path)


def exchange_figure(exchange: Exchange, *, times: bool = False) -> Figure | None:
    """What each of the four gave: a letter for its bits with its pass rate, a rate only, or a median time. None where
    all are right and bits were compared."""
    crossed = exchange.factor in (Varied.VARIABLES, Varied.VERSION)
    if crossed and exchange.by_bits:
        return None
    letters: Letters = {}

    def entry(ran: Ran | None) -> Entry:
        if ran is None or (times and not ran.times_us):
            return ABSENT
        if times:
            return Entry(text=f"{brief_time(median(ran.times_us))} ({len(ran.times_us)} launches)")
        if crossed:
            return rate_entry(ran.passed, ran.runs)
        if not ran.runs:
            return Entry(text=ran.status.replace("_", " "), state=BAD)
        state = GOOD if ran.passed == ran.runs else BAD
        name = _letter(letters, ran.bits)
        return Entry(text=f"{name} \N{MIDDLE DOT} {ran.passed}/{ran.runs}", state=state)

    places = exchange.base, exchange.this
    title, row, columns = EXCHANGED[exchange.factor]
    what = "median time" if times else "output, and trials within tolerance"
    named = [package_text(exchange.package, version) for version in exchange.versions]
    heads = named if exchange.package else [f"{columns} {whose}" for whose in places]
    rows = ((f"{row} {home}", [entry(exchange.cells.get((home, whose))) for whose in places]) for home in places)
    return _figure(title.format(package=exchange.package, what=what), heads, rows, exchange.path)


# The title, and what is before the name of a row's home and of a column's level.
EXCHANGED = {
    Varied.CODE: ("The same object code in the other environment: {what}", "run in", "object code from"),
    Varied.PACKAGE: ("{package} exchanged: {what}", "PyTorch of", ""),
    Varied.VARIABLES: (
        "The same binary with the other environment's variables: runs within tolerance",
        "run in",
        "variables of",
    ),
    Varied.VERSION: (
        "The same file, told the PyTorch version of the other environment: runs within tolerance",
        "run in",
        "told the version of",
    ),
}


def package_text(package: str, version: str) -> str:
    """Return a package as sentences have it after "with": in that version, or none."""
    return f"{package} {version}" if version else f"no {package}"


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
    return Entry(text=f"{pair.max_abs:.2g}" if pair.max_abs is not None else "not finite", state=DIFFERENT)


def crossing_figure(cell: CellFacts, references: Sequence[str]) -> Figure | None:
    """Kernel and references of both environments against each other and the truth; None where nothing was crossed."""
    short = dict(zip(cell.environments, cell.versions, strict=True))
    names = [(name, where) for name in (protocol.KERNEL, *references) for where in cell.environments]
    owners = {f"{where}:{name}": f"{name}, {short[where]}" for name, where in names}
    truths = {f"{where}:{protocol.TRUTH}": f"float64 of {short[where]}" for where in cell.environments}
    own = any(pair.left in truths or pair.right in truths for pair in cell.pairs)  # of a problem each computes its own
    others = {**owners, **(truths if own else {protocol.TRUTH: "truth"})}
    if not any(_pair(cell.pairs, one, two) for one in owners for two in others if one != two):
        return None
    title = f"Largest difference between stored outputs, {cell.workload}"
    rows = ((label, [_crossed(cell.pairs, owner, other) for other in others]) for owner, label in owners.items())
    pointer = cell.evidence.crossing_pointer(cell.kernel, cell.row.device, cell.workload)
    return _figure(title, tuple(others.values()), rows, pointer)


def _rate(rate: Rate | None, units: float | None) -> Entry:
    if rate is None:
        return ABSENT
    return rate_entry(rate.passed, rate.trials, f" \N{MIDDLE DOT} {units:.3g} units" if units is not None else "")


def recipes_figure(cell: CellFacts) -> Figure:
    """Trials within tolerance and the largest error, by the kind of inputs."""
    units = [{recipe.recipe: recipe.max_units for recipe in side.recipes} for side in cell.sides]
    rows = (
        (f"{name.replace('_', ' ')} inputs", [_rate(cell.passing(name, n), units[n].get(name)) for n in (0, 1)])
        for name in dict.fromkeys((*units[0], *units[1]))
    )
    columns = (cell.versions[0], "again" if cell.row.alone else cell.versions[1])
    return _figure(f"Trials within tolerance, {cell.workload}", columns, rows, cell.record)


def cells_figure(title: str, cells: Sequence[CellFacts]) -> Figure:
    """One row for each workload: pass rates and errors on both sides."""
    rows = ((cell.workload, (_rate(side.rate, side.max_units) for side in cell.sides)) for cell in cells)
    return _figure(title, cells[0].versions, rows, cells[0].record)


def operators_figure(cells: Sequence[CellFacts]) -> Figure:
    rows = (
        (cell.workload, (Entry(text=", ".join(backends(side)) or "not recorded") for side in cell.sides))
        for cell in cells
    )
    return _figure("Operators that ran under the name default", cells[0].versions, rows, cells[0].record)


def lines_figure(lines: LinesRun) -> Figure:
    gone, new = lines.alone
    sides = [(line, ("ran", "did not run")) for line in gone] + [(line, ("did not run", "ran")) for line in new]
    shown = sorted(sides, key=lambda side: side[0].number)[:LINES_SHOWN]
    rows = ((f"{line.number}: {line.text}", (Entry(text=word) for word in words)) for line, words in shown)
    return _figure("Lines that ran in only one environment", lines.cell.versions, rows, lines.path)


def draws_figure(lines: LinesRun) -> Figure:
    entries = (
        Entry(text="yes", state=GOOD) if record.draws_as_model else Entry(text="no", state=BAD)
        for record in (lines.base, lines.this)
    )
    rows = [("the same as the model's", entries)]
    return _figure("Random numbers drawn by its constructor", lines.cell.versions, rows, lines.path)


def supported_figure(cells: Sequence[CellFacts]) -> Figure:
    def entry(status: str) -> Entry:
        return Entry(text=status.replace("_", " "), state=GOOD if status == protocol.OK else BAD)

    rows = ((cell.workload, (entry(side.status) for side in cell.sides)) for cell in cells)
    return _figure("Supported", cells[0].versions, rows)


def profile_figure(found: Profiles) -> Figure:
    reach = max(abs(change.delta_us) for change in found.changes) or 1.0

    def entries(change: OperatorChange) -> tuple[Entry, ...]:
        times = ("not run" if us is None else brief_time(us) for us in (change.before_us, change.after_us))
        state, share = BAD if change.delta_us > 0 else GOOD, change.delta_us / reach
        moved = Entry(text=brief_time(change.delta_us, "+"), state=state, share=share)
        return (*(Entry(text=time) for time in times), moved)

    title = f"Where a call's time goes, {found.cell.workload}: the largest changes"
    rows = ((function_name(change.name), entries(change)) for change in found.changes[:OPERATORS_SHOWN])
    return _figure(title, (*found.cell.versions, "change"), rows, found.path)


def _ratio(judged: Judged, reach: float) -> Entry:
    if judged.ratio is None:
        return ABSENT
    known = judged.low is not None and judged.high is not None
    interval = f" [{judged.low:.2f}, {judged.high:.2f}]" if known else ""
    state = {"regressed": BAD, "improved": GOOD}.get(judged.verdict, PLAIN)
    share = math.log(judged.ratio) / reach if reach else 0.0
    return Entry(text=f"{judged.ratio:.2f}\N{MULTIPLICATION SIGN}{interval}", state=state, share=share)


def memory_figure(versions: Sequence[str], cells: Sequence[CellFacts]) -> Figure:
    reach = max((abs(math.log(cell.row.memory.ratio or 1.0)) for cell in cells), default=0.0)

    def entries(memory: Memory) -> tuple[Entry, ...]:
        peaks = (Entry(text=bytes_text(side.peak_bytes)) for side in (memory.baseline, memory.this))
        return (*peaks, _ratio(memory, reach))

    return _figure("Peak memory of a call", (*versions, "ratio"), ((c.workload, entries(c.row.memory)) for c in cells))


def ratios_figure(change: TimeChange) -> Figure:
    reach = max((abs(math.log(ratio)) for ratio in change.ratios), default=0.0)

    def entries(latency: Latency) -> tuple[Entry, ...]:
        medians = latency.baseline.median_us, latency.this.median_us
        times = (ABSENT if median is None else Entry(text=brief_time(median)) for median in medians)
        return (*times, _ratio(latency, reach))

    mode = mode_text(change.cells[0].row, change.mode)
    title = f"Median of launch medians, {mode}" if mode else "Median of launch medians"
    rows = ((cell.workload, entries(change.latency(cell))) for cell in change.cells)
    return _figure(title, (*change.case.versions, "ratio"), rows)
