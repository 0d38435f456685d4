"""Figures of causes: small tables that can be checked at a glance, drawn from the facts of a finding. Pure.

Outputs are named by letters: the same letter, the same bits. A letter is given where it is first met in a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from string import ascii_uppercase

from harness.schema.experiment_records import ConditionResult
from harness.schema.records import Crossing
from harness.worker import protocol
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import BAD, DIFFERENT, GOOD, PLAIN, SAME, Entry, Figure
from reports.attribute.cells import CellFacts
from reports.attribute.experiments import LengthTrials
from reports.attribute.finding import Finding
from reports.attribute.memory_use import MemoryChange
from reports.attribute.profiles import OperatorChange, Profiles
from reports.attribute.times import TimeChange
from reports.attribute.trials import Exchange, Ran, Varied
from reports.model import Judged, Rate
from reports.text import brief_time, bytes_text, function_name, mode_text

ABSENT = Entry(text="\N{EM DASH}")
OPERATORS_SHOWN = 8
SIZES = ("head_dim", "batch", "heads", "seq_len")
Row = tuple[str, Iterable[Entry]]
Letters = dict[tuple[str, ...], str]


def figures_of(
    case: CaseFacts, cells: Sequence[CellFacts], finding: Finding, change: TimeChange | MemoryChange | None
) -> Iterator[Figure]:
    """Yield what experiments gave, then the results that the cause explains."""
    for cell, spread in finding.spreads[:3]:
        what = "By how memory was filled" if spread.site else "By what ran just before"
        yield _conditions(f"{what}, {cell.workload}, in {spread.environment}", spread.results, spread.path)
    for cell, conditions in finding.runs[:1]:
        yield _conditions(f"By call, {cell.workload}, in {conditions.environment}", conditions.ran, conditions.path)
    if finding.exchange is not None and finding.exchange[1].cells:
        yield from _exchange(finding.exchange[1], times=isinstance(change, TimeChange))
    yield from (_lengths(each) for each in finding.lengths[:1] if each.right)
    if finding.profiles is not None:
        yield _profile(finding.profiles)
    rows: list[tuple[str, Judged, tuple[str, str]]] = []
    if isinstance(change, TimeChange):
        for cell in cells:
            latency = change.latency(cell)
            texts = _median_of(latency.baseline.median_us), _median_of(latency.this.median_us)
            rows.append((cell.workload, latency, texts))
        mode = mode_text(cells[0].row, change.mode)
        yield _changes("Median of launch medians" + (f", {mode}" if mode else ""), case.versions, rows)
    elif change is not None:
        for cell in cells:
            memory = cell.row.memory
            texts = bytes_text(memory.baseline.peak_bytes), bytes_text(memory.this.peak_bytes)
            rows.append((cell.workload, memory, texts))
        yield _changes("Peak memory of a call", case.versions, rows)
    elif any(side.rate for cell in cells for side in cell.sides):
        yield _recipes(cells[0]) if len(cells) == 1 else _cells(cells)
    if finding.crossed is not None:
        yield from _crossing(cells[0], finding.crossed)


def _letter(known: Letters, outputs: Sequence[str]) -> str:
    """Return A, B, ... Z, A2, B2 ... for digests, in the order in which they are met."""
    turn, place = divmod(len(known), len(ascii_uppercase))
    return known.setdefault(tuple(outputs), ascii_uppercase[place] + (str(turn + 1) if turn else ""))


def _figure(title: str, columns: Iterable[str], rows: Iterable[Row], record: str | None = None) -> Figure:
    made = tuple((label, tuple(entries)) for label, entries in rows)
    return Figure(title=title, columns=tuple(columns), rows=made, record=record)


def rate_entry(passed: int, runs: int, also: str = "") -> Entry:
    if not runs:
        return ABSENT
    return Entry(text=f"{passed}/{runs}{also}", state=GOOD if passed == runs else BAD, share=passed / runs)


# -- experiments ------------------------------------------------------------------------------------------


def _output(result: ConditionResult, letters: Letters) -> Entry:
    """Return one letter for all trials, where every repeat of each gave the same bits."""
    if not result.output_sha256:
        return ABSENT
    if result.runs and result.nonfinite == result.runs:
        return Entry(text="NaN", state=DIFFERENT)
    if all(len(set(trial)) == 1 for trial in result.output_sha256):
        return Entry(text=_letter(letters, [trial[0] for trial in result.output_sha256 if trial]))
    distinct = max(len(set(trial)) for trial in result.output_sha256)
    most = max(len(trial) for trial in result.output_sha256)
    return Entry(text=f"{distinct} outputs in {most} runs", state=DIFFERENT)


def _conditions(title: str, results: Iterable[ConditionResult], path: str) -> Figure:
    letters: Letters = {}
    rows = []
    for result in results:
        error = f"{result.max_units:.3g}" if result.max_units is not None else "\N{EM DASH}"
        if result.nonfinite:
            error = f"NaN in {result.nonfinite}"
        entries = [rate_entry(result.passed, result.runs), Entry(text=error), _output(result, letters)]
        rows.append((result.condition.label or "as validated", entries))
    columns = ("Runs within tolerance", "Largest error (rounding units)", "Output")
    return _figure(title, columns, rows, path)


def _lengths(lengths: LengthTrials) -> Figure:
    conditions = lengths.conditions
    results = sorted(conditions.ran, key=lambda result: [getattr(result.condition, name) for name in SIZES])
    return _conditions(f"By size, {conditions.record.workload}", results, conditions.path)


# The title, and what is before the name of a row's home and of a column's level.
EXCHANGED = {
    Varied.CODE: ("The same object code in the other environment", "run in", "object code from"),
    Varied.PACKAGE: ("A package exchanged", "PyTorch of", ""),
    Varied.VARIABLES: ("The same binary with the other environment's variables", "run in", "variables of"),
    Varied.VERSION: (
        "The same file, told the PyTorch version of the other environment",
        "run in",
        "told the version of",
    ),
}


def _exchange(exchange: Exchange, *, times: bool) -> Iterator[Figure]:
    """Yield what each of the four gave: a letter for its bits with its pass rate, or a median time. Nothing where all
    are right and bits were compared."""
    if exchange.factor in (Varied.VARIABLES, Varied.VERSION) and exchange.by_bits:
        return
    letters: Letters = {}

    def entry(ran: Ran | None) -> Entry:
        if ran is None or (times and not ran.times_us):
            return ABSENT
        if times:
            return Entry(text=f"{brief_time(median(ran.times_us))} ({len(ran.times_us)} launches)")
        if not ran.runs:
            return Entry(text=ran.status.replace("_", " "), state=BAD)
        name = f"{_letter(letters, ran.bits)} \N{MIDDLE DOT} " if ran.bits else ""
        return Entry(text=f"{name}{ran.passed}/{ran.runs}", state=GOOD if ran.passed == ran.runs else BAD)

    places = exchange.base, exchange.this
    title, row, column = EXCHANGED[exchange.factor]
    named = [f"{exchange.package} {version}" if version else f"no {exchange.package}" for version in exchange.versions]
    heads = named if exchange.package else [f"{column} {whose}" for whose in places]
    rows = ((f"{row} {home}", [entry(exchange.cells.get((home, whose))) for whose in places]) for home in places)
    yield _figure(f"{title}: {'median time' if times else 'runs within tolerance'}", heads, rows, exchange.path)


# -- results ----------------------------------------------------------------------------------------------


def _crossed(pairs: Sequence[Crossing], one: str, two: str) -> Entry:
    if one == two:
        return Entry(text="\N{MIDDLE DOT}")
    found = [pair for pair in pairs if {pair.left, pair.right} == {one, two}]
    if not found:
        return ABSENT
    pair = max(found, key=lambda pair: pair.max_abs or 0.0)
    if pair.identical_trials == pair.trials:
        return Entry(text="same bits", state=SAME)
    return Entry(text=f"{pair.max_abs:.2g}" if pair.max_abs is not None else "not finite", state=DIFFERENT)


def _crossing(cell: CellFacts, references: Sequence[str]) -> Iterator[Figure]:
    """Yield kernel and references of both environments against each other and the truth; nothing where they were not
    compared."""
    names = [name for name in (protocol.KERNEL, *references) for _ in cell.environments]
    wheres = [*zip(cell.environments, cell.versions, strict=True)] * (len(references) + 1)
    owners = {f"{where}:{name}": f"{name}, {version}" for name, (where, version) in zip(names, wheres, strict=True)}
    truths = {f"{where}:{protocol.TRUTH}": f"float64 of {version}" for where, version in wheres}
    of_each = {pair.left for pair in cell.pairs} | {pair.right for pair in cell.pairs}
    others = {**owners, **{name: text for name, text in truths.items() if name in of_each}}
    others |= {protocol.TRUTH: "truth"} if protocol.TRUTH in of_each else {}
    if not of_each.isdisjoint(owners):
        rows = [(label, [_crossed(cell.pairs, owner, other) for other in others]) for owner, label in owners.items()]
        pointer = cell.evidence.crossing_pointer(cell.kernel, cell.row.device, cell.workload)
        yield _figure(f"Largest difference between stored outputs, {cell.workload}", others.values(), rows, pointer)


def _rate(rate: Rate | None, units: float | None) -> Entry:
    if rate is None:
        return ABSENT
    return rate_entry(rate.passed, rate.trials, f" \N{MIDDLE DOT} {units:.3g} units" if units is not None else "")


def _recipes(cell: CellFacts) -> Figure:
    """Return trials within tolerance and the largest error, by the kind of inputs."""
    units = [{recipe.recipe: recipe.max_units for recipe in side.recipes} for side in cell.sides]
    rows = (
        (f"{name.replace('_', ' ')} inputs", [_rate(cell.passing(name, n), units[n].get(name)) for n in (0, 1)])
        for name in dict.fromkeys((*units[0], *units[1]))
    )
    columns = (cell.versions[0], "again" if cell.row.alone else cell.versions[1])
    return _figure(f"Trials within tolerance, {cell.workload}", columns, rows, cell.record)


def _cells(cells: Sequence[CellFacts]) -> Figure:
    """Return one row for each workload: pass rates and errors on both sides."""
    rows = ((cell.workload, [_rate(side.rate, side.max_units) for side in cell.sides]) for cell in cells)
    return _figure("Trials within tolerance, and the error in units", cells[0].versions, rows, cells[0].record)


def _profile(found: Profiles) -> Figure:
    reach = max(abs(change.delta_us) for change in found.changes) or 1.0

    def entries(change: OperatorChange) -> list[Entry]:
        times = ("not run" if us is None else brief_time(us) for us in (change.before_us, change.after_us))
        state, share = BAD if change.delta_us > 0 else GOOD, change.delta_us / reach
        moved = Entry(text=brief_time(change.delta_us, "+"), state=state, share=share)
        return [*(Entry(text=time) for time in times), moved]

    title = f"Where a call's time goes, {found.cell.workload}: the largest changes"
    rows = ((function_name(change.name), entries(change)) for change in found.changes[:OPERATORS_SHOWN])
    return _figure(title, (*found.cell.versions, "change"), rows, found.path)


def _median_of(us: float | None) -> str:
    return ABSENT.text if us is None else brief_time(us)


def _changes(title: str, versions: Sequence[str], rows: Sequence[tuple[str, Judged, tuple[str, str]]]) -> Figure:
    """Return values of both sides and their ratios, as bars on one scale."""
    reach = max((abs(math.log(judged.ratio)) for _, judged, _ in rows if judged.ratio), default=0.0)
    made = [(label, [*(Entry(text=text) for text in texts), _ratio(judged, reach)]) for label, judged, texts in rows]
    return _figure(title, (*versions, "ratio"), made)


def _ratio(judged: Judged, reach: float) -> Entry:
    if judged.ratio is None:
        return ABSENT
    known = judged.low is not None and judged.high is not None
    interval = f" [{judged.low:.2f}, {judged.high:.2f}]" if known else ""
    state = {"regressed": BAD, "improved": GOOD}.get(judged.verdict, PLAIN)
    share = math.log(judged.ratio) / reach if reach else 0.0
    return Entry(text=f"{judged.ratio:.2f}\N{MULTIPLICATION SIGN}{interval}", state=state, share=share)
