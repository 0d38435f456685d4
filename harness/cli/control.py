"""`kernel-matrix control`: what the controls of a run say of the procedure, for the pages of other runs to cite."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import Parser, at_least


def add_options(parser: Parser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="RUN")
    parser.add_argument("--launches", type=at_least(2), metavar="N", help="blocks in a trial; default: 10")
    parser.add_argument("--write", type=Path, metavar="FILE", help="store it, for the pages of other runs to cite")


def run(options: argparse.Namespace) -> int:
    from reports.compare.control import LAUNCHES
    from reports.render.commands import judge_controls

    return judge_controls(options.run_folder, launches=options.launches or LAUNCHES, write=options.write)
