"""The page and the summary of a bisection, from its one record. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Any

from harness.schema.bisection_records import Aspect, BisectionRecord, CellSeen, Probe
from harness.typed import typed_by_nox, without_option, words_of
from harness.worker import protocol
from reports.render.tables import axis_reach
from reports.render.templating import render_html, render_markdown, render_text
from reports.text import ratio_interval, short


def describe_cell(seen: CellSeen, other: CellSeen | None = None) -> str:
    """Say what was seen of one cell; beside another version's, only of the input distributions whose rates differ."""
    if seen.ratio is not None:
        counted = f"{seen.median_us:.3g} us, {seen.replicates} replicates"
        if seen.low == seen.high == 1:
            return f"the measure of the others ({counted})"
        return f"{ratio_interval(seen.ratio, seen.low, seen.high)} the good one's time ({counted})"
    if seen.status not in protocol.RAN:
        return seen.status.replace("_", " ") + (f": {short(seen.message)}" if seen.message else "")
    others = other.rates if other else {}
    shown = [
        f"{name} {rate.passed}/{rate.trials}"
        for name, rate in seen.rates.items()
        if name not in others or rate.passed * others[name].trials != others[name].passed * rate.trials
    ]
    return ", ".join(shown)


def find_commits(before: Probe, after: Probe) -> str:
    """Return GitHub's page of the commits between two; '' where one is not known, or they are the same."""
    commits = [probe.observed.torch_git if probe.observed else "" for probe in (before, after)]
    is_known = all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits) and commits[0] != commits[1]
    return f"https://github.com/pytorch/pytorch/compare/{'...'.join(commits)}" if is_known else ""


def find_next_command(record: BisectionRecord) -> str:
    """Return the report of the run that saw a step; where there is none, the question that is left."""
    command = record.question.command
    for probe in record.probes if record.steps else ():
        if probe.version == record.steps[0].after:
            return shlex.join(words_of("report", f"reports/runs/{probe.run}", nox=typed_by_nox(command)))
    left = next(aspect for aspect in Aspect if aspect is not record.question.what)
    return shlex.join([*without_option(command, "--what"), "--what", left.value])


def _list_values(record: BisectionRecord) -> dict[str, Any]:
    cells = [cell for probe in record.probes for cell in probe.cells]
    values: dict[str, Any] = {
        "record": record,
        "question": record.question,
        "probes": {probe.version: probe for probe in record.probes},
        "cells": {probe.version: {cell.cell: cell for cell in probe.cells} for probe in record.probes},
        "describe": describe_cell,
        "find_commits": find_commits,
        "widest": axis_reach(end for cell in cells for end in (cell.low, cell.high)),
        "command": shlex.join(record.question.command),
        "next_command": find_next_command(record),
    }
    return values | {"answer": render_text("bisection_answer.txt.j2", **values)}


def render_answer(record: BisectionRecord) -> str:
    """Return what was found, in plain words."""
    return str(_list_values(record)["answer"])


def render_page(record: BisectionRecord) -> str:
    return render_html("bisection.html.j2", **_list_values(record))


def render_summary_text(record: BisectionRecord) -> str:
    return render_markdown("bisection.md.j2", **_list_values(record))
