"""The leaderboard of a sweep, as a page and as CSV, from its one record. Pure.

The page shows what the search measured and, apart from it, the confirmation: the smallest of many noisy figures is too
small by how it was chosen, so the search's own figure of its winner is never given as a gain.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from harness.schema.sweep_records import Compared, SweepRecord, Trial
from harness.search.sweep.answer import STAGE_WORDS, rejected_text, setting_text
from harness.search.sweep.measure import by_score
from reports.compare.latency import median_interval
from reports.render.pictures import CHECK, CROSS, badge, ratio_picture, reach
from reports.render.templating import inlined, render_csv, render_html
from reports.text import TIMES, median_interval_text, ratio_interval

TABLE = "leaderboard.csv"
SHOWN_REJECTED = 200
MEASURED = (
    "environment",
    "workload",
    "mode",
    "launches",
    "median_us",
    "median_low_us",
    "median_high_us",
    "incumbent_median_us",
    "ratio",
    "ratio_low",
    "ratio_high",
)
VERDICTS = {
    "confirmed": ("improved", "confirmed", CHECK),
    "not_confirmed": ("undecided", "not confirmed", "?"),
    "none_faster": ("pass", "nothing faster", "\N{EN DASH}"),
    "none_admitted": ("failing", "nothing could be timed", CROSS),
}


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


def places(record: SweepRecord, compared: Sequence[Compared], *, incumbent: bool = False) -> list[dict[str, Any]]:
    """Each environment, workload and mode of one setting."""
    confidence, widest = 1 - record.question.level, _reach(record)
    found = []
    for each in compared:
        times = each.incumbent_us if incumbent else each.this_us
        found.append(
            {
                "where": _where(record, each),
                "time": median_interval_text(median(times), *median_interval(times, confidence)),
                "ratio": "1" if incumbent else ratio_interval(each.ratio, each.low, each.high),
                "picture": "" if incumbent else ratio_picture(each.ratio, each.low, each.high, widest),
                "launches": len(times),
            }
        )
    return found


def leaderboard(record: SweepRecord) -> list[dict[str, Any]]:
    """Finalists first, in the order of the finals, then the others as the search saw them; the incumbent where its 1
    puts it. `places` are of the finals where a setting came so far, else of the search."""
    finals = {trial.kernel: trial for trial in by_score(record.finals)}
    searched = {trial.kernel: trial for trial in by_score(all_trials(record))}
    ordered = [*finals.values(), *(trial for kernel, trial in searched.items() if kernel not in finals)]
    rows = [
        {
            "rank": str(rank),
            "setting": setting_text(trial.setting),
            "incumbent": False,
            "searched": f"{searched.get(trial.kernel, trial).score:.3f}{TIMES}",
            "again": f"{finals[trial.kernel].score:.3f}{TIMES}" if trial.kernel in finals else "",
            "places": places(record, trial.compared),
        }
        for rank, trial in enumerate(ordered, 1)
    ]
    if beside := next((trial for trial in ordered if trial.compared), None):
        own = {
            "rank": "\N{EN DASH}",
            "setting": setting_text(record.question.incumbent),
            "incumbent": True,
            "searched": f"1{TIMES}",
            "again": f"1{TIMES}" if finals else "",
            "places": places(record, beside.compared, incumbent=True),
        }
        faster = (index for index, trial in enumerate(ordered) if trial.score is not None and trial.score >= 1)
        rows.insert(next(faster, len(rows)), own)
    return rows


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
        **inlined("script", "sort.js"),
    )


def _csv_rows(record: SweepRecord) -> Iterator[Mapping[str, object]]:
    """A row for each setting, phase, environment, workload and mode; one for a setting that was rejected."""
    phases = {"search": all_trials(record), "final": record.finals}
    phases["confirmation"] = [record.confirmation.trial] if record.confirmation else []
    for phase, trial in ((phase, trial) for phase, trials in phases.items() for trial in trials):
        of_trial = {name: trial.setting.get(name) for name in record.question.search} | {"phase": phase}
        rejected = {
            "score": trial.score,
            "rejected": trial.stage or "",
            "rejected_in": trial.environment,
            "reason": trial.message,
        }
        for each in trial.compared:
            low, high = median_interval(each.this_us, 1 - record.question.level)
            measured = (
                each.environment,
                each.workload,
                each.mode,
                len(each.this_us),
                median(each.this_us),
                low,
                high,
                median(each.incumbent_us),
                each.ratio,
                each.low,
                each.high,
            )
            yield of_trial | dict(zip(MEASURED, measured, strict=True)) | rejected
        if not trial.compared:
            yield of_trial | dict.fromkeys(MEASURED) | rejected


def render_leaderboard(record: SweepRecord) -> str:
    return render_csv(_csv_rows(record))
