"""The page of a sweep, from its one record. Pure.

The page shows what the search measured and, apart from it, the confirmation: the smallest of many noisy figures is too
small by how it was chosen, so the search's own figure of its winner is never given as a gain.
"""

from __future__ import annotations

import shlex
from typing import Any

from harness.schema.sweep_records import SweepRecord, describe
from harness.typed import typed_by_nox, without_option, words_of
from reports.render.tables import axis_reach
from reports.render.templating import inlined, render_html, render_text
from reports.text import ratio_interval


def find_next_command(record: SweepRecord) -> str:
    """Return how to see the run that confirmed a setting, or the last one; with a budget that did not do, to go on."""
    command = record.command
    is_all = sum(not trial.confirms for trial in record.trials) >= record.settings - 1
    if record.winner or is_all:
        return shlex.join(words_of("report", f"reports/runs/{record.trials[-1].run}", nox=typed_by_nox(command)))
    return shlex.join([*without_option(command, "--budget"), f"--budget={2 * record.budget_s:g}s"])


def _list_values(record: SweepRecord) -> dict[str, Any]:
    trials = sorted(record.trials, key=lambda trial: trial.score)  # stable: of equals the first
    values: dict[str, Any] = {
        "record": record,
        "finals": [trial for trial in trials if trial.confirms],
        "timed": [trial for trial in trials if not trial.confirms and not trial.rejected],
        "rejected": [trial for trial in trials if trial.rejected],
        "describe": describe,
        "interval": ratio_interval,
        "widest": axis_reach(each.ratio for trial in trials for each in trial.ratios),
        "command": shlex.join(record.command),
        "next_command": find_next_command(record),
    }
    return values | {"answer": render_text("sweep_answer.txt.j2", **values)}


def render_answer(record: SweepRecord) -> str:
    """Return what was found, in plain words."""
    return str(_list_values(record)["answer"])


def render_page(record: SweepRecord) -> str:
    return render_html("sweep.html.j2", **_list_values(record), **inlined("script", "sort.js"))
