"""The leaderboard of a sweep, as a page and as CSV, from its one record. Pure.

The page shows what the search measured and, apart from it, the confirmation: the smallest of many noisy figures is too
small by how it was chosen, so the search's own figure of its winner is never given as a gain.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from harness.schema.sweep_records import Compared, SweepRecord, Trial
from harness.search.sweep.answer import STAGE_WORDS, rejected_text, setting_text
from harness.search.sweep.measure import by_score
from reports.compare.latency import median_interval
from reports.render.pictures import CHECK, CROSS, badge, ratio_picture, reach
from reports.render.templating import render_csv, render_html
from reports.text import TIMES, median_interval_text, ratio_interval

TABLE = "leaderboard.csv"
SHOWN_REJECTED = 200
VERDICTS = {
    "confirmed": ("improved", "confirmed", CHECK),
    "not_confirmed": ("undecided", "not confirmed", "?"),
    "none_faster": ("pass", "nothing faster", "\N{EN DASH}"),
    "none_admitted": ("failing", "nothing could be timed", CROSS),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """One environment, workload and mode of one setting."""

    where: str
    time: str
    ratio: str
    picture: Markup
    launches: int


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One timed setting. `places` are of the finals where it came so far, else of the search."""

    rank: str
    setting: str
    incumbent: bool
    searched: str
    again: str
    places: list[Place]


def all_trials(record: SweepRecord) -> list[Trial]:
    return [trial for batch in record.batches for trial in batch.trials]


def _reach(record: SweepRecord) -> float:
    trials = [*all_trials(record), *record.finals, *([record.confirmation.trial] if record.confirmation else [])]
    return reach(end for trial in trials for each in trial.compared for end in (each.ratio, each.low, each.high))


def _where(record: SweepRecord, each: Compared) -> str:
    """An environment, and of the rest what is not the same everywhere."""
    parts = [each.environment]
    parts += [each.workload] if len(record.question.workloads) > 1 else []
    parts += [each.mode] if record.question.device == "cuda" else []
    return " ".join(parts)


def places(record: SweepRecord, compared: Sequence[Compared], *, incumbent: bool = False) -> list[Place]:
    confidence, widest = 1 - record.question.level, _reach(record)
    found = []
    for each in compared:
        times = each.incumbent_us if incumbent else each.this_us
        found.append(
            Place(
                where=_where(record, each),
                time=median_interval_text(median(times), *median_interval(times, confidence)),
                ratio="1" if incumbent else ratio_interval(each.ratio, each.low, each.high),
                picture=Markup("") if incumbent else ratio_picture(each.ratio, each.low, each.high, widest),
                launches=len(times),
            )
        )
    return found


def leaderboard(record: SweepRecord) -> list[SettingRow]:
    """Finalists first, in the order of the finals, then the others as the search saw them; the incumbent where its 1
    puts it."""
    finals = {trial.kernel: trial for trial in by_score(record.finals)}
    searched = {trial.kernel: trial for trial in by_score(all_trials(record))}
    ordered = [*finals.values(), *(trial for kernel, trial in searched.items() if kernel not in finals)]
    rows = []
    for rank, trial in enumerate(ordered, 1):
        again = finals.get(trial.kernel)
        first = searched.get(trial.kernel, trial)
        rows.append(
            SettingRow(
                rank=str(rank),
                setting=setting_text(trial.setting),
                incumbent=False,
                searched=f"{first.score:.3f}{TIMES}",
                again=f"{again.score:.3f}{TIMES}" if again else "",
                places=places(record, trial.compared),
            )
        )
    return _with_incumbent(record, rows, ordered)


def _with_incumbent(record: SweepRecord, rows: list[SettingRow], ordered: list[Trial]) -> list[SettingRow]:
    beside = next((trial for trial in ordered if trial.compared), None)
    if beside is None:
        return rows
    own = SettingRow(
        rank="\N{EN DASH}",
        setting=setting_text(record.question.incumbent),
        incumbent=True,
        searched=f"1{TIMES}",
        again=f"1{TIMES}" if record.finals else "",
        places=places(record, beside.compared, incumbent=True),
    )
    faster = next((i for i, trial in enumerate(ordered) if trial.score is not None and trial.score >= 1), len(rows))
    return [*rows[:faster], own, *rows[faster:]]


def gain(record: SweepRecord) -> str:
    """The confirmation's figure, to be quoted, beside the search's, which is not."""
    confirmation = record.confirmation
    if confirmation is None or confirmation.trial.score is None:
        return ""
    searched = next(
        (trial.score for trial in all_trials(record) if trial.kernel == confirmation.trial.kernel and trial.score), None
    )
    beside = f", not the search's {searched:.3f}{TIMES}" if searched else ""
    return f"Quote {confirmation.trial.score:.3f}{TIMES}, the geometric mean of these ratios{beside}"


def render_page(record: SweepRecord) -> str:
    trials = all_trials(record)
    confirmation = record.confirmation
    rejected = [trial for trial in [*trials, *record.finals] if trial.stage]
    return render_html(
        "sweep.html.j2",
        record=record,
        question=record.question,
        badge=badge(*VERDICTS[record.verdict]),
        gain=gain(record),
        incumbent=setting_text(record.question.incumbent),
        winner=setting_text(record.winner) if record.winner else "",
        confirming=confirmation.trial.compared if confirmation else [],
        before=places(record, confirmation.trial.compared, incumbent=True) if confirmation else [],
        after=places(record, confirmation.trial.compared) if confirmation else [],
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


def _csv_rows(record: SweepRecord) -> Iterator[Mapping[str, object]]:
    """A row for each setting, phase, environment, workload and mode; one for a setting that was rejected."""
    settings = list(record.question.search)
    for phase, trial in _rows(record):
        compared: Sequence[Compared | None] = trial.compared or [None]
        for each in compared:
            low, high = median_interval(each.this_us, 1 - record.question.level) if each else (None, None)
            yield {
                **{name: trial.setting.get(name) for name in settings},
                "phase": phase,
                "environment": each.environment if each else "",
                "workload": each.workload if each else "",
                "mode": each.mode if each else "",
                "launches": len(each.this_us) if each else None,
                "median_us": median(each.this_us) if each else None,
                "median_low_us": low,
                "median_high_us": high,
                "incumbent_median_us": median(each.incumbent_us) if each else None,
                "ratio": each.ratio if each else None,
                "ratio_low": each.low if each else None,
                "ratio_high": each.high if each else None,
                "score": trial.score,
                "rejected": trial.stage or "",
                "rejected_in": trial.environment,
                "reason": trial.message,
            }


def render_leaderboard(record: SweepRecord) -> str:
    return render_csv(_csv_rows(record))
