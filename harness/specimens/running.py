"""`specimens`: run each as a user would, explain it, ask for causes, and hold the answers against the truth."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.matrix import load_matrix
from harness.errors import BUILD_FAILED, INFRASTRUCTURE, InfrastructureError, InputError
from harness.schema.records import Device
from harness.schema.storage import Run
from harness.specimens.asking import answers, ask
from harness.specimens.format import CAUSES, HEALTHY, KERNEL, Half, Specimen, load_specimens
from harness.specimens.project import make_project, project_folder
from harness.specimens.scoring import Scored, render, score, summary
from harness.specimens.showing import Shown, missing, shown_by
from harness.worker import protocol

SPECIMENS = Path("csrc") / "specimens"
RAN = (0, BUILD_FAILED, INFRASTRUCTURE)  # exit codes of a run that left its records


@dataclass(frozen=True, kw_only=True)
class Options:
    matrix_path: Path
    half: Half | None = None
    devices: tuple[Device, ...] = ()
    only: tuple[str, ...] = ()
    out: Path | None = None
    executor: tuple[str, ...] = ()  # options of `harness matrix` that say where cells run
    causes: bool = True  # explain the runs, and ask

    @property
    def root(self) -> Path:
        return self.matrix_path.resolve().parent

    @property
    def folder(self) -> Path:
        return self.out or self.root / "reports" / "specimens"


def chosen(specimens: dict[str, Specimen], options: Options) -> dict[str, Specimen]:
    """Those that are asked for. InputError where a name is none, or nothing is left."""
    for name in options.only:
        if name not in specimens:
            raise InputError(f"--only {name}: no such specimen", f"choose from: {', '.join(sorted(specimens))}")
    found = {
        name: specimen
        for name, specimen in specimens.items()
        if (not options.only or name in options.only)
        and (options.half is None or specimen.half == options.half)
        and (not options.devices or specimen.device in options.devices)
    }
    if not found:
        raise InputError("no specimen is left", "see them all: --list; those for CUDA need a GPU")
    return found


def coverage(specimens: dict[str, Specimen]) -> str:
    """Each cause, with how often it is the main one or another: a gap is a class that nothing tests."""
    lines = []
    for cause in CAUSES:
        mains = sum(specimen.causes[0] == cause for specimen in specimens.values())
        others = sum(cause in specimen.causes[1:] for specimen in specimens.values())
        lines.append(f"{cause:26s} {mains:3d} main, {others:3d} beside")
    healthy = sum(specimen.healthy for specimen in specimens.values())
    return "\n".join([*lines, f"{len(specimens)} specimens, {healthy} healthy ({HEALTHY})"])


Start = Callable[[Sequence[str], Path], int]


# By an argument and not by PYTHONPATH, which a bundle's Python sets itself.
FROM_HERE = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('harness', run_name='__main__')"


def start(words: Sequence[str], project: Path) -> int:
    """A `python -m harness` of its own, started in the project as a user starts it; its exit code."""
    command = [sys.executable, "-c", FROM_HERE, str(Path(__file__).parents[2]), *words]
    return subprocess.run(command, cwd=project).returncode


def run_one(name: str, specimen: Specimen, project: Path, options: Options, begin: Start) -> Run:
    """Run a specimen's matrix, and the experiments that its records call for. InfrastructureError where it stops."""
    latest = project / "reports" / "latest"
    latest.unlink(missing_ok=True)
    explain = "auto" if options.causes else "never"
    words = ["matrix", f"--device={specimen.device}", f"--explain={explain}", "--no-report"]
    code = begin([*words, *options.executor], project)
    if code not in RAN or not latest.exists():
        raise InfrastructureError(f"{name}: its run ended with exit code {code}", f"see it alone: --only {name}")
    return Run(latest.resolve())


def run_specimens(
    options: Options, *, begin: Start = start, asked: Callable[[Path], Sequence[Any]] = ask
) -> tuple[int, Path]:
    """Run, score and print. (0, or 1 where a specimen did not show its story; the file of results)."""
    shipped, _ = load_matrix(options.matrix_path)
    every = load_specimens(options.root / SPECIMENS)
    specimens = chosen(every, options)
    rows: list[dict[str, Any]] = []
    scored: list[Scored] = []
    path = options.folder / "results.json"
    for number, (name, specimen) in enumerate(specimens.items(), start=1):
        print(f"== {number}/{len(specimens)} {name} ({specimen.device})", flush=True)
        started = time.monotonic()
        project = make_project(name, specimen, shipped, options.root, options.folder).parent
        run = run_one(name, specimen, project, options, begin)
        seen = shown_by(run)
        lacks = missing(specimen, seen)
        row: dict[str, Any] = {"name": name, "device": specimen.device, "half": specimen.half}
        row["causes"], row["shown"], row["missing"] = list(specimen.causes), seen.as_json(), lacks
        row["project"], row["run"] = project_folder(options.folder, name).name, run.folder.name
        row["took_s"] = round(time.monotonic() - started, 1)
        if options.causes:
            scored.append(score(name, specimen, answers(asked(run.folder), KERNEL, specimen.device)))
        rows.append(row)
        print(line(name, specimen, seen, lacks), flush=True)
        result = {"specimens": rows, **({"score": summary(scored)} if options.causes else {})}
        protocol.write_json(str(path), result)  # after each: what stops the next one loses nothing
    print("\n" + table(specimens, rows))
    if options.causes:
        print("\n" + render(scored))
    return int(any(row["missing"] for row in rows)), path


def line(name: str, specimen: Specimen, seen: Shown, lacks: Sequence[str]) -> str:
    ratio = f", {seen.ratio:.2f} times as long" if seen.ratio else ""
    steady = ", unsteady" if seen.unsteady else ""
    verdict = f"  DOES NOT SHOW ITS STORY: {'; '.join(lacks)}" if lacks else ""
    return f"   {specimen.causes[0]}: {' -> '.join(seen.statuses)}{steady}{ratio}{verdict}"


def table(specimens: dict[str, Specimen], rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{'specimen':34s} {'main cause':26s} {'validation, by environment':28s} took"]
    for row in rows:
        statuses = " -> ".join(row["shown"]["statuses"])
        shows = "" if not row["missing"] else "  DOES NOT SHOW ITS STORY"
        lines.append(f"{row['name']:34s} {row['causes'][0]:26s} {statuses:28s} {row['took_s']:.0f} s{shows}")
    return "\n".join(lines)
