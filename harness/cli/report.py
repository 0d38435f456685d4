"""`kernel-matrix report`: the report of a run, a bisection or a sweep, from its records. Nothing is measured.

The command line alone knows `reports`; nothing else in `harness` does.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from harness.cli.options import Parser, add_gates, add_run_folder, add_strict
from harness.errors import DONE, UNDECIDED, InputError, exit_code
from harness.progress import printable


def add_options(parser: Parser) -> None:
    add_run_folder(parser)
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="cite the controls of another run; default: calibration.json in the run's folder, where there is one",
    )
    add_gates(parser)
    add_strict(parser, f"exit code {UNDECIDED} where what --fail-on names is undecided")


def run(options: argparse.Namespace) -> int:
    folder: Path = options.run_folder
    if (folder / "bisection.json").is_file():
        return report_bisection(folder)
    if (folder / "sweep.json").is_file():
        return report_sweep(folder)
    if (folder / "question.json").is_file():
        raise InputError(f"{folder}: not finished", "start the same command again: it goes on from what is recorded")
    return exit_code(report_run(folder, options, options.calibration))


def report_run(folder: Path, options: argparse.Namespace, calibration: Path | None = None) -> list[int]:
    """Write the report of a run. The exit codes that hold of it."""
    from reports.compare.calibration import FILE, load_calibration
    from reports.compare.exit_codes import DETECT, exit_codes, unseen_text
    from reports.load.evidence import load_evidence
    from reports.render.output import write_report
    from reports.render.report import build_report

    gc.disable()  # a report is one pass over data without cycles; the collector would walk all records again and again
    beside = folder / FILE
    cited = calibration or (beside if beside.is_file() else None)
    known = load_calibration(cited) if cited else None
    report = build_report(load_evidence(folder), known, count_missing=options.count_missing)
    page = write_report(report, options.out or folder)
    print(report.headline)
    print("; ".join(f"{aspect}: {tally}" for aspect, tally in report.tallies))
    for sentence in report.unrepeatable:
        print(printable(sentence))
    print(page)
    detect = options.detect or DETECT
    if "latency" in options.fail_on and (unseen := unseen_text(report, detect)):
        print(unseen)
    return exit_codes(report, frozenset(options.fail_on), options.strict, detect)


def report_bisection(folder: Path) -> int:
    from reports.render.bisection import write

    write(folder)
    return DONE


def report_sweep(folder: Path) -> int:
    from reports.render.sweep import write

    write(folder)
    return DONE
