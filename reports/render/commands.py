"""What the command line does with records: render, judge, print. Nothing is measured, and no record is touched.

Each function returns an exit code and raises a HarnessError (`harness.errors`).
"""

from __future__ import annotations

import gc
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import errors
from harness.errors import InputError, meant
from harness.progress import printable
from harness.schema.bisection_records import BisectionRecord
from harness.schema.run_records import RunRecord
from harness.schema.storage import load_record
from harness.schema.sweep_records import SweepRecord
from harness.source_marks import for_github, for_gitlab, in_actions, in_gitlab
from harness.worker import protocol
from reports.compare import gate
from reports.compare.exit_codes import DETECT, exit_codes, memory_unseen_text, unseen_text
from reports.compare.gate import CellVerdict
from reports.compare.outcomes import unbuilt
from reports.compare.two_runs import combine, load_two
from reports.load.evidence import load_evidence
from reports.render import bisection, machines, sweep
from reports.render.marks import marks
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.reproduce import render_script
from reports.render.summaries import render_comment, render_junit, render_summary, render_summary_text, render_timings
from reports.sentences import sentence
from reports.text import ABSENT, bytes_text, ratio_interval, short, time_text

LATEST = Path("reports") / "latest"
CODE_QUALITY = "codequality.json"
COMPARED = "compared"
WIDTH = 320  # a row is a line, also in a log


def render_run(
    run_folder: Path = LATEST,
    *,
    out: Path | None = None,
    count_missing: bool = False,
    fail_on: frozenset[str] = frozenset(),
    strict: bool = False,
    detect: float = DETECT,
) -> int:
    """Write the report of a run."""
    gc.disable()  # one pass over data without cycles: the collector would walk all records again and again
    report = Report(load_evidence(run_folder), count_missing=count_missing)
    page = write_report(report, out or run_folder)
    print(printable("\n".join(report.answers.lines)))
    print(page)
    evidence, rows = report.evidence, report.rows
    if in_actions() or in_gitlab():
        found = marks(evidence, report.answers, _project(run_folder))
        for each in found if in_actions() else ():
            print(printable(for_github(each)))
        if in_gitlab():
            _write(page.with_name(CODE_QUALITY), for_gitlab(found), "give another --out")
    if "latency" in fail_on and (text := unseen_text(evidence, rows, detect)):
        print(text)
    if "memory" in fail_on and (text := memory_unseen_text(rows)):
        print(text)
    codes = exit_codes(evidence, rows, fail_on, strict, detect)
    if errors.BUILD_FAILED in codes:
        for sentence in unbuilt(evidence):
            print(printable(f"{sentence}; the page was written all the same: {page}"), file=sys.stderr)
    return errors.exit_code(codes)


def _project(folder: Path) -> Path:
    """The project that a run below its `reports` is of; else this folder."""
    above = (place.parent for place in folder.resolve().parents if place.name == "reports")
    return next(above, Path())


def render_two(
    a: Path,
    b: Path,
    *,
    torch: Sequence[str] = (),
    other_machine: bool = False,
    out: Path | None = None,
    **judging: Any,
) -> int:
    """A page of what moved from run A to run B, for each environment that both have, in a folder of its name; by
    default below reports/compared. `judging`: what `render_run` takes. InputError where they cannot be compared."""
    runs = load_two(a, b, other_machine=other_machine)
    versions = {id: runs.b.environments[id].torch for id in runs.environments}
    chosen = [id for id, version in versions.items() if not torch or version in torch]
    if not chosen:
        known = list(dict.fromkeys(versions.values()))
        remedy = f"{meant(torch[0], known)}choose from: {', '.join(known)}"
        raise InputError(f"--torch {torch[0]}: no environment of it is in both runs", remedy)
    a, b = a.resolve(), b.resolve()
    reports = b.parents[1] if b.parent.name == "runs" else Path("reports")
    target = out or reports / COMPARED / f"{a.name}-{b.name}"
    codes = []
    for id in chosen:
        folder, part = target / id, target / f".{id}.part"
        if folder.exists():
            _refuse_another(folder)
        shutil.rmtree(part, ignore_errors=True)
        combine(runs, id, part)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        print(printable(f"{id}: B is compared with A"))
        codes.append(render_run(folder, **judging))
    return errors.exit_code(codes)


def _refuse_another(folder: Path) -> None:
    """InputError where a folder has something else than two runs that were compared."""
    if not (folder / "run.json").is_file() or not load_record(folder / "run.json", RunRecord).sides:
        raise InputError(f"{folder}: holds something else", "give another --out")


def judge_gate(run_folder: Path, *, at_most: float, memory_at_most: float | None, **chosen: Any) -> int:
    """Whether kernels are fast enough, and correct everywhere. `chosen`: what else `gate.gate` takes."""
    found = gate.gate(load_evidence(run_folder), at_most=at_most, memory_at_most=memory_at_most, **chosen)
    if not found:
        raise InputError(f"{run_folder}: no cell is left to judge", "select less narrowly")
    _print_gate(found, at_most, memory_at_most)
    return errors.exit_code(each.verdict.exit_code for each in found)


def render_side_by_side(runs: Sequence[Path], out: Path) -> int:
    """A page with a group of columns for each device of these runs, which have their reports."""
    out.mkdir(parents=True, exist_ok=True)
    page = out / "index.html"
    _write(page, machines.render_machines(machines.groups(runs, out)), "give another --out")
    print(page)
    return errors.DONE


def render_search(folder: Path) -> int:
    """Write the page of a bisection or a sweep into its folder, and say what was found. RecordError where the record
    cannot be trusted."""
    if (folder / "bisection.json").is_file():
        bisected = load_record(folder / "bisection.json", BisectionRecord)
        answer = bisection.render_answer(bisected)
        files = {"summary.md": bisection.render_summary_text(bisected), "index.html": bisection.render_page(bisected)}
        command = bisection.find_next_command(bisected)
    else:
        swept = load_record(folder / "sweep.json", SweepRecord)
        answer, command = sweep.render_answer(swept), sweep.find_next_command(swept)
        files = {"index.html": sweep.render_page(swept)}
    for name, text in files.items():
        _write(folder / name, text, "make it writable")
    print(printable(answer))
    print(printable(f"next: {command}"))
    print(folder / "index.html")
    return errors.DONE


def write_report(report: Report, folder: Path) -> Path:
    """All files, each whole or not at all; index.html last, so that a page never exists without its data."""
    scripts = {each.script: render_script(report.evidence, each) for each in report.explanations if each.script}
    files = {
        **scripts,
        "summary.json": render_summary(report),
        "timings.csv": render_timings(report),
        "summary.md": render_summary_text(report),
        "comment.md": render_comment(report),
        "junit.xml": render_junit(report),
        "index.html": render_page(report),
    }
    for stale in folder.glob("reproduce-*.py"):
        if stale.name not in files:
            stale.unlink(missing_ok=True)  # of an earlier report with other causes
    for name, text in files.items():
        _write(folder / name, text, "give another --out")
    return folder / "index.html"


def _write(path: Path, text: str, remedy: str) -> None:
    try:
        # A lone surrogate in a record has no bytes in UTF-8.
        protocol.write_atomically(str(path), text.encode("utf-8", "replace"))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}", remedy) from None


def _print_gate(found: Sequence[CellVerdict], at_most: float, memory_at_most: float | None) -> None:
    has_modes = memory_at_most is not None or any(each.cell.device == "cuda" for each in found)
    heading = ["cell", *(["judged"] if has_modes else []), "kernel", "reference", "share, 95%", "launches"]
    table = Table(*heading, "gate", "why", box=None, pad_edge=False)
    for each in found:
        of_kernel, of_reference = (median(values) if values else None for values in (each.of_kernel, each.of_reference))
        in_words = bytes_text if each.mode == gate.MEMORY else time_text
        cells = [
            each.cell.id,
            *([each.mode] if has_modes else []),
            in_words(of_kernel),
            f"{each.reference} {in_words(of_reference)}",
            ratio_interval(each.ratio.ratio, each.ratio.low, each.ratio.high) if each.ratio else ABSENT,
            str(len(each.of_kernel) or ABSENT),
            each.verdict,
            short(each.why),
        ]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    Console(highlight=False, width=WIDTH).print(table)
    counts = Counter(each.verdict for each in found)
    in_order = {verdict: counts[verdict] for verdict in gate.CODES}
    print(sentence("gate", "tally", at_most, memory_at_most, gate.CONFIDENCE, in_order))
