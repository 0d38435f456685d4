"""python -m reports: records in, report out. Nothing is measured, and no record is touched.

python -m reports [RUN] [--calibration FILE]     the report of a run
python -m reports control RUN [--write FILE]     what its controls say of the procedure
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HarnessError, InputError, exit_code
from harness.inside import protocol
from harness.options import ASPECTS, Parser, run_options
from reports import calibration
from reports.calibration import FILE as CALIBRATION
from reports.evidence import load_evidence
from reports.formats import words
from reports.page import render_page
from reports.report import Report, build_report, exit_codes
from reports.summaries import render_csv, render_junit, render_markdown, render_summary

LATEST = Path("reports") / "latest"


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="python -m reports", description="Render a run's report from its records.", parents=[run_options()]
    )
    parser.add_argument("run_folder", nargs="?", type=Path, default=LATEST, help=f"default: {LATEST}")
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help=f"cite the controls of another run; default: {CALIBRATION} in the run's folder, if it is there",
    )
    return parser.parse_args(arguments)


def write_report(report: Report, folder: Path) -> Path:
    """All files, each whole or not at all; index.html last, so that a page never stands before its data."""
    files = {
        "summary.json": render_summary(report),
        "timings.csv": render_csv(report),
        "summary.md": render_markdown(report),
        "junit.xml": render_junit(report),
        "index.html": render_page(report),
    }
    for name, text in files.items():
        try:
            # A lone surrogate in a record has no bytes in UTF-8.
            protocol.write_atomically(str(folder / name), text.encode("utf-8", "replace"))
        except OSError as error:
            raise InputError(f"{folder / name}: cannot be written: {error.strerror}", "give another --out") from None
    return folder / "index.html"


def count_line(report: Report) -> str:
    parts = []
    told = [*zip(ASPECTS, (report.correctness_counts, report.latency_counts), strict=True)]
    if report.hot_counts:
        told.append(("hot latency", report.hot_counts))
    for aspect, counts in told:
        said = ", ".join(f"{count} {words(verdict)}" for verdict, count in counts.items())
        parts.append(f"{aspect}: {said or 'none'}")
    return "; ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    # A report is one pass over data without cycles; the collector would walk all records again and again.
    gc.disable()
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["control"]:
        return calibration.main(given[1:])
    try:
        options = parse_options(given)
        beside = options.run_folder / CALIBRATION
        cited = options.calibration or (beside if beside.is_file() else None)
        report = build_report(load_evidence(options.run_folder), calibration.load_calibration(cited) if cited else None)
        page = write_report(report, options.out or options.run_folder)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    print(report.headline)
    print(count_line(report))
    print(page)
    return exit_code(exit_codes(report, options.fail_on, options.strict))


if __name__ == "__main__":
    sys.exit(main())
