"""The leaderboard of a sweep, as a page and as CSV, from its one record.

Nothing is run. The page shows what the search saw and, apart from it, what confirmed: the smallest of many noisy
figures is too small by how it was chosen, so the search's own figure of its winner is never given as a gain.
"""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from markupsafe import Markup

from harness.schema.sweep_records import Compared, SweepRecord, Trial
from harness.search.sweep.answer import STAGE_WORDS, rejected_text, setting_text
from harness.search.sweep.measure import by_score
from reports.compare import statistics
from reports.model import LatencySide
from reports.render.formats import TIMES, interval_text, ratio_interval
from reports.render.single import ratio_picture, reach, render, write_report

RECORD, TABLE = "sweep.json", "leaderboard.csv"
MOST_REACH = math.log(4)  # of the axis
SHOWN_REJECTED = 200
VERDICTS = {
    "confirmed": ("improved", "\N{CHECK MARK}", "confirmed"),
    "not_confirmed": ("undecided", "?", "not confirmed"),
    "none_faster": ("pass", "\N{EN DASH}", "nothing faster"),
    "none_admitted": ("failing", "\N{MULTIPLICATION X}", "nothing could be timed"),
}
COLUMNS = [
    "phase", "environment", "workload", "mode", "launches", "median_us", "median_low_us", "median_high_us",
    "incumbent_median_us", "ratio", "ratio_low", "ratio_high", "score", "rejected", "rejected_in", "reason",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Line:
    """One environment, workload and mode of one setting."""

    where: str
    time: str
    ratio: str
    picture: Markup
    launches: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One timed setting. `lines` are of the finals where it came so far, else of the search."""

    place: str
    setting: str
    kernel: str
    incumbent: bool
    searched: str
    again: str
    lines: list[Line]


def all_trials(record: SweepRecord) -> list[Trial]:
    return [trial for batch in record.batches for trial in batch.trials]


def time_text(values: Sequence[float], confidence: float) -> str:
    """A median of launch medians with its interval, or why there is none."""
    interval = statistics.median_interval(values, confidence)
    side = LatencySide(
        environment="",
        status="ok",
        median_us=median(values),
        low_us=interval[0] if interval else None,
        high_us=interval[1] if interval else None,
    )
    return interval_text(side)


def _reach(record: SweepRecord) -> float:
    trials = [*all_trials(record), *record.finals, *([record.confirmation.trial] if record.confirmation else [])]
    ends = (end for trial in trials for each in trial.compared for end in (each.ratio, each.low, each.high))
    return min(MOST_REACH, reach(ends))


def _where(record: SweepRecord, each: Compared) -> str:
    """An environment, and of the rest what is not the same everywhere."""
    parts = [each.environment]
    parts += [each.workload] if len(record.question.workloads) > 1 else []
    parts += [each.mode] if record.question.device == "cuda" else []
    return " ".join(parts)


def lines(record: SweepRecord, compared: Sequence[Compared], *, incumbent: bool = False) -> list[Line]:
    confidence, widest = 1 - record.question.level, _reach(record)
    return [
        Line(
            where=_where(record, each),
            time=time_text(each.incumbent_us if incumbent else each.this_us, confidence),
            ratio="1" if incumbent else ratio_interval(each.ratio, each.low, each.high),
            picture=Markup("") if incumbent else ratio_picture(each.ratio, each.low, each.high, widest),
            launches=len(each.this_us),
        )
        for each in compared
    ]


def leaderboard(record: SweepRecord) -> list[Row]:
    """Finalists first, in the order of the finals, then the others as the search saw them; the incumbent where its 1
    puts it."""
    finals = {trial.kernel: trial for trial in by_score(record.finals)}
    searched = {trial.kernel: trial for trial in by_score(all_trials(record))}
    ordered = [*finals.values(), *(trial for kernel, trial in searched.items() if kernel not in finals)]
    rows = []
    for place, trial in enumerate(ordered, 1):
        again = finals.get(trial.kernel)
        first = searched.get(trial.kernel, trial)
        rows.append(
            Row(
                place=str(place),
                setting=setting_text(trial.setting),
                kernel=trial.kernel,
                incumbent=False,
                searched=f"{first.score:.3f}{TIMES}",
                again=f"{again.score:.3f}{TIMES}" if again else "",
                lines=lines(record, trial.compared),
            )
        )
    return _with_incumbent(record, rows, ordered)


def _with_incumbent(record: SweepRecord, rows: list[Row], ordered: list[Trial]) -> list[Row]:
    beside = next((trial for trial in ordered if trial.compared), None)
    if beside is None:
        return rows
    own = Row(
        place="\N{EN DASH}",
        setting=setting_text(record.question.incumbent),
        kernel=record.question.kernel,
        incumbent=True,
        searched=f"1{TIMES}",
        again=f"1{TIMES}" if record.finals else "",
        lines=lines(record, beside.compared, incumbent=True),
    )
    faster = next((i for i, trial in enumerate(ordered) if trial.score is not None and trial.score >= 1), len(rows))
    return [*rows[:faster], own, *rows[faster:]]


def gain(record: SweepRecord) -> str:
    """What is to be quoted: the confirmation's figure, beside the search's, which is not."""
    confirmation = record.confirmation
    if confirmation is None or confirmation.trial.score is None:
        return ""
    searched = next(
        (trial.score for trial in all_trials(record) if trial.kernel == confirmation.trial.kernel and trial.score), None
    )
    beside = f", not the search's {searched:.3f}{TIMES}" if searched else ""
    return f"The figure to quote is {confirmation.trial.score:.3f}{TIMES}, the geometric mean of these ratios{beside}"


def badge(record: SweepRecord) -> Markup:
    kind, symbol, said = VERDICTS[record.verdict]
    return Markup('<span class="badge v-{}"><span aria-hidden="true">{}</span> {}</span>').format(kind, symbol, said)


def render_page(record: SweepRecord) -> str:
    trials = all_trials(record)
    confirmation = record.confirmation
    rejected = [trial for trial in [*trials, *record.finals] if trial.stage]
    return render(
        "sweep.html.j2",
        record=record,
        question=record.question,
        badge=badge(record),
        gain=gain(record),
        incumbent=setting_text(record.question.incumbent),
        winner=setting_text(record.winner) if record.winner else "",
        confirming=confirmation.trial.compared if confirmation else [],
        before=lines(record, confirmation.trial.compared, incumbent=True) if confirmation else [],
        after=lines(record, confirmation.trial.compared) if confirmation else [],
        rows=leaderboard(record),
        rejected=rejected[:SHOWN_REJECTED],
        more_rejected=max(0, len(rejected) - SHOWN_REJECTED),
        rejected_text=rejected_text(rejected),
        setting=setting_text,
        stages=STAGE_WORDS,
        tried=len(trials),
        rejected_count=sum(trial.stage is not None for trial in trials),
        untried=list(dict.fromkeys(text for batch in record.batches for text in batch.untried)),
        command=shlex.join(record.command),
        csv=TABLE,
        axis=f"{math.exp(-_reach(record)):.2g} to {math.exp(_reach(record)):.2g}{TIMES}",
    )


def _rows(record: SweepRecord) -> Iterator[tuple[str, Trial]]:
    for trial in all_trials(record):
        yield "search", trial
    for trial in record.finals:
        yield "final", trial
    if record.confirmation is not None:
        yield "confirmation", record.confirmation.trial


def render_csv(record: SweepRecord) -> str:
    """A row for each setting, phase, environment, workload and mode; one for a setting that was rejected."""
    names = list(record.question.search)
    text = io.StringIO()
    table = csv.DictWriter(text, [*names, *COLUMNS], lineterminator="\n")
    table.writeheader()
    for phase, trial in _rows(record):
        own = {
            **trial.setting,
            "phase": phase,
            "score": trial.score,
            "rejected": trial.stage or "",
            "rejected_in": trial.environment,
            "reason": trial.message,
        }
        if not trial.compared:
            table.writerow(own)
        for each in trial.compared:
            interval = statistics.median_interval(each.this_us, 1 - record.question.level) or (None, None)
            measured = {
                "environment": each.environment,
                "workload": each.workload,
                "mode": each.mode,
                "launches": len(each.this_us),
                "median_us": median(each.this_us),
                "median_low_us": interval[0],
                "median_high_us": interval[1],
                "incumbent_median_us": median(each.incumbent_us),
                "ratio": each.ratio,
                "ratio_low": each.low,
                "ratio_high": each.high,
            }
            table.writerow({**own, **measured})
    return text.getvalue()


def write(folder: Path) -> None:
    """The leaderboard of a sweep, in its folder of reports/sweeps/."""
    write_report(folder, RECORD, SweepRecord, {TABLE: render_csv, "index.html": render_page})
