"""`kernel-matrix history`: the finished runs of this project over time. Nothing is measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import Parser

REPORTS = Path("reports")


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "folder", nargs="?", type=Path, default=REPORTS, metavar="REPORTS", help="where runs/ lies; default: reports"
    )


def run(options: argparse.Namespace) -> int:
    from reports.render.commands import render_over_time

    return render_over_time(options.folder)
