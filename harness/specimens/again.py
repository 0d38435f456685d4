"""`specimens --again DIR`: what the attribution says today of runs that were made before. Nothing is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.specimens.asking import answers, ask
from harness.specimens.format import KERNEL, load_specimens
from harness.specimens.running import SPECIMENS, Options, chosen
from harness.specimens.scoring import Scored, render, score


def stored_runs(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Folders of runs, by specimen: `folder` holds one of each specimen's name, as reports/records packs them, or is
    what `specimens --out` wrote, whose results.json names each project and run."""
    found = {name: folder / name for name in names if (folder / name / "run.json").is_file()}
    results = folder / "results.json"
    for row in json.loads(results.read_text())["specimens"] if results.is_file() else []:
        run = folder / row["project"] / "reports" / "runs" / row["run"]
        if row["name"] in names and (run / "run.json").is_file():
            found.setdefault(row["name"], run)
    return found


def ask_again(options: Options, folder: Path, *, asked: Callable[[Path], Sequence[Any]] = ask) -> list[Scored]:
    """Score the stored runs of the chosen specimens, and print each answer. InputError where there is none."""
    specimens = chosen(load_specimens(options.root / SPECIMENS), options)
    runs = stored_runs(folder, list(specimens))
    if not runs:
        raise InputError(f"--again {folder}: holds no run of a specimen", "give a folder with one folder for each")
    scored = []
    for name, run in runs.items():
        scored.append(score(name, specimens[name], answers(asked(run), KERNEL, specimens[name].device)))
        print(line(scored[-1]), flush=True)
    print("\n" + render(scored))
    return scored


def line(one: Scored) -> str:
    given = ", ".join(f"{answer.cause} ({answer.grade})" for answer in one.answers) or "no answer"
    told = f"right  {one.name}: {given}"
    return told if one.right else f"WRONG  {one.name}: {given}; true: {one.causes[0]}"
