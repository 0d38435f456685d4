"""Runs each case as a user would, explains it, and holds the causes given against the true ones."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.matrix import load_matrix
from harness.config.shipped import ROOT
from harness.errors import BUILD_FAILED, INFRASTRUCTURE, InfrastructureError, InputError
from harness.schema.records import Device
from harness.schema.storage import Run
from harness.worker import protocol
from tests.fault_cases.cases import FaultCase, Split, load_cases
from tests.fault_cases.observed import Observed, not_shown, observed
from tests.fault_cases.project import make_project
from tests.fault_cases.score import Score, answers, render, score, summary

RAN = (0, BUILD_FAILED, INFRASTRUCTURE)  # exit codes of a run that left its records
NOT_SHOWN = "DOES NOT SHOW WHAT IT MUST"


@dataclass(frozen=True, kw_only=True)
class Options:
    split: Split | None = None
    rounds: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    only: tuple[str, ...] = ()
    out: Path = ROOT / "reports" / "fault_cases"
    executor: tuple[str, ...] = ()  # options of `matrix` that say where cells run
    causes: bool = True  # explain the runs, and score the causes given


def chosen(options: Options) -> list[FaultCase]:
    """The cases that the options name. InputError where a name is unknown, or no case is left."""
    cases = load_cases()
    for name in options.only:
        if name not in cases:
            raise InputError(f"--only {name}: no such case", "see their names: --list")
    left = [
        case
        for case in cases.values()
        if (not options.only or case.name in options.only)
        and (options.split in (None, case.split))
        and (not options.rounds or case.round in options.rounds)
        and (not options.devices or case.device in options.devices)
    ]
    if not left:
        raise InputError("no case is left", "see them all: --list; those for CUDA need a GPU")
    return left


Start = Callable[[Sequence[str], Path], int]
Attribute = Callable[[Path], Sequence[Any]]

# By an argument and not by PYTHONPATH, which a bundle's Python sets itself.
FROM_HERE = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('harness', run_name='__main__')"


def start(words: Sequence[str], project: Path) -> int:
    """A `python -m harness` of its own, started in the project as a user starts it; its exit code."""
    return subprocess.run([sys.executable, "-c", FROM_HERE, str(ROOT), *words], cwd=project).returncode


def attribute(run_folder: Path) -> Sequence[Any]:
    """Every cause that the reports give for a run, ranked."""
    from reports.attribute import explained

    return explained(run_folder)


def run_one(case: FaultCase, project: Path, options: Options, begin: Start) -> Run:
    """Run a case's matrix, and the experiments that its records call for. InfrastructureError where it stops."""
    latest = project / "reports" / "latest"
    latest.unlink(missing_ok=True)
    explain = "auto" if options.causes else "never"
    code = begin(
        ["matrix", f"--device={case.device}", f"--explain={explain}", "--no-report", *options.executor], project
    )
    if code not in RAN or not latest.exists():
        raise InfrastructureError(f"{case.name}: its run ended with exit code {code}", "run it alone: --only NAME")
    return Run(latest.resolve())


def run_cases(options: Options, *, begin: Start = start, attributed: Attribute = attribute) -> tuple[int, Path]:
    """Run, score and print. (0, or 1 where a case did not show what it must; the file of results)."""
    shipped, _ = load_matrix(ROOT / "matrix.yaml")
    cases = chosen(options)
    rows: list[dict[str, Any]] = []
    scores: list[Score] = []
    path = options.out / "results.json"
    for number, case in enumerate(cases, start=1):
        print(f"== {number}/{len(cases)} {case.name} ({case.device})", flush=True)
        started = time.monotonic()
        project = make_project(case, shipped, options.out)
        run = run_one(case, project, options, begin)
        seen = observed(run, protocol.MODEL if case.operator else protocol.KERNEL)
        row = {
            "name": case.name,
            "device": case.device,
            "split": case.split,
            "causes": list(case.causes),
            "shown": seen.as_json(),
            "missing": not_shown(case, seen),
            "project": project.name,
            "run": run.folder.name,
            "took_s": round(time.monotonic() - started, 1),
        }
        rows.append(row)
        if options.causes:
            scores.append(score(case, answers(attributed(run.folder), case.device, case.subject)))
        print(f"   {row_line(case, seen, row)}", flush=True)
        result = {"cases": rows, **({"score": summary(scores)} if options.causes else {})}
        protocol.write_json(str(path), result)  # after each case, so that an error later loses nothing
    print(f"\n{sum(not row['missing'] for row in rows)} of {len(rows)} show what they must")
    if options.causes:
        print("\n" + render(scores))
    return int(any(row["missing"] for row in rows)), path


def row_line(case: FaultCase, seen: Observed, row: dict[str, Any]) -> str:
    ratio = f", {seen.ratio:.2f} times as long" if seen.ratio else ""
    steady = ", unsteady" if seen.unsteady else ""
    missing = f"  {NOT_SHOWN}: {'; '.join(row['missing'])}" if row["missing"] else ""
    return f"{case.causes[0]}: {' -> '.join(seen.statuses)}{steady}{ratio}, {row['took_s']:.0f} s{missing}"


def stored_runs(folder: Path) -> dict[str, Path]:
    """Folders of runs, by case: `folder` holds one of each case's name, as reports/records packs them, or is what
    `--out` named, whose results.json names each project and run."""
    runs = {path.parent.name: path.parent for path in sorted(folder.glob("*/run.json"))}
    results = folder / "results.json"
    value = json.loads(results.read_text()) if results.is_file() else {}
    for row in value.get("cases", []):
        run = folder / row["project"] / "reports" / "runs" / row["run"]
        if (run / "run.json").is_file():
            runs.setdefault(row["name"], run)
    return runs


def score_again(options: Options, folder: Path, *, attributed: Attribute = attribute) -> list[Score]:
    """Score stored runs of the chosen cases by the rules of today, and print each. InputError where there is none."""
    runs = stored_runs(folder)
    scores = []
    for case in chosen(options):
        if case.name in runs:
            scores.append(score(case, answers(attributed(runs[case.name]), case.device, case.subject)))
            print(scores[-1].line, flush=True)
    if not scores:
        raise InputError(f"--again {folder}: holds no run of these cases", "give a folder with one folder for each")
    print("\n" + render(scores))
    return scores
