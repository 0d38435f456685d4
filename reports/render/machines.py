"""Runs of the same kernels on different devices, side by side: a group of columns for each. Nothing is compared across
groups. Made from each run's summary.json, next to its page."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.errors import InputError
from reports.render.subjects import State
from reports.render.templating import render_html


@dataclass(frozen=True, kw_only=True)
class Group:
    """A device of a run. `cells`: by subject, one for each of `versions`; `lines`: what was found of each subject;
    `unchanged`: references that were measured, of which there is nothing to say."""

    title: str
    page: str
    versions: Sequence[str]
    cells: Mapping[str, Sequence[Mapping[str, str]]]
    lines: Sequence[str]
    unchanged: Collection[str]


def groups(runs: Sequence[Path], beside: Path) -> list[Group]:
    """Of each run each device that something ran on. `beside`: the folder that links are relative to. InputError where
    a run has no report, or nothing ran."""
    found = [group for run in runs for group in _of_run(run, beside)]
    if not found:
        raise InputError("nothing ran on any device", "each run's own page says why")
    return found


def _of_run(run: Path, beside: Path) -> Iterator[Group]:
    path = run / "summary.json"
    try:
        summary = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}", f"kernel-matrix report {run}") from None
    answers = [*summary["answers"]["kernels"], *summary["answers"]["references"]]
    for device in dict.fromkeys(each["device"] for each in answers):
        own = [each for each in answers if each["device"] == device]
        if any(each["state"] != State.ABSENT for each in own):
            yield Group(
                title=_title(summary, device),
                page=quote(os.path.relpath(run.resolve() / "index.html", beside.resolve())),
                versions=[
                    f"PyTorch {each['torch']}" if each["torch"] else each["asked"] for each in summary["environments"]
                ],
                cells={name: cells for each in own for name, cells in each["grid"].items()},
                lines=[f"{', '.join(each['subjects'])}: {each['what']}" for each in own],
                unchanged={row["target"] for row in summary["comparisons"] if row["device"] == device},
            )


def _title(summary: Mapping[str, Any], device: str) -> str:
    models = dict.fromkeys(gpu["name"] for gpu in summary["gpus"])
    return "CPU" if device == "cpu" else " and ".join(models) or "GPU"


def render_machines(found: Sequence[Group]) -> str:
    subjects = list(dict.fromkeys(name for group in found for name in group.cells))
    return render_html("machines.html.j2", groups=found, subjects=subjects)
