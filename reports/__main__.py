"""python -m reports: records in, report out. Nothing is measured, and no record is touched.

python -m reports [RUN] [--calibration FILE]     the report of a run
python -m reports control RUN [--write FILE]     what its controls say of the procedure
python -m reports bisection FOLDER               a bisection's page and summary
python -m reports sweep FOLDER                   a sweep's leaderboard
python -m reports gate [RUN] [--reference NAME]  whether a kernel is fast enough, and correct everywhere
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.cli.options import Parser, run_options
from harness.cli.progress import printable
from harness.errors import HarnessError, exit_code
from reports.compare import calibration, gate
from reports.compare.calibration import FILE as CALIBRATION
from reports.compare.exit_codes import exit_codes, unseen_text
from reports.load.evidence import load_evidence
from reports.render import bisection, sweep
from reports.render.files import write_file
from reports.render.page import render_page
from reports.render.report import Report, build_report
from reports.render.reproduce import render_script
from reports.render.summaries import render_csv, render_junit, render_markdown, render_summary

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
    scripts = {each.script: render_script(report.evidence, each) for each in report.explanations if each.script}
    files = {
        **scripts,
        "summary.json": render_summary(report),
        "timings.csv": render_csv(report),
        "summary.md": render_markdown(report),
        "junit.xml": render_junit(report),
        "index.html": render_page(report),
    }
    for stale in folder.glob("reproduce-*.py"):
        if stale.name not in files:
            stale.unlink(missing_ok=True)  # of a report that explained otherwise
    for name, text in files.items():
        write_file(folder / name, text, "give another --out")
    return folder / "index.html"


def main(arguments: Sequence[str] | None = None) -> int:
    # A report is one pass over data without cycles; the collector would walk all records again and again.
    gc.disable()
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["control"]:
        return calibration.main(given[1:])
    if given[:1] == ["bisection"]:
        return bisection.main(given[1:])
    if given[:1] == ["sweep"]:
        return sweep.main(given[1:])
    if given[:1] == ["gate"]:
        return gate.main(given[1:])
    try:
        options = parse_options(given)
        beside = options.run_folder / CALIBRATION
        cited = options.calibration or (beside if beside.is_file() else None)
        known = calibration.load_calibration(cited) if cited else None
        report = build_report(load_evidence(options.run_folder), known, count_missing=options.count_missing)
        page = write_report(report, options.out or options.run_folder)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    print(report.headline)
    print("; ".join(f"{aspect}: {tally}" for aspect, tally in report.tallies))
    for sentence in report.unrepeatable:
        print(printable(sentence))
    print(page)
    if "latency" in options.fail_on and (said := unseen_text(report, options.detect)):
        print(said)
    return exit_code(exit_codes(report, options.fail_on, options.strict, options.detect))


if __name__ == "__main__":
    sys.exit(main())
