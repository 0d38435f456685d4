"""`kernel-matrix control`: what the controls of a run say of the procedure, for the pages of other runs to cite."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import Parser, at_least
from harness.errors import DONE


def add_options(parser: Parser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="RUN")
    parser.add_argument("--launches", type=at_least(2), metavar="N", help="blocks in a trial; default: 10")
    parser.add_argument("--write", type=Path, metavar="FILE", help="store it, for the pages of other runs to cite")


def run(options: argparse.Namespace) -> int:
    from reports.compare.calibration import calibrate, lines
    from reports.compare.control import LAUNCHES
    from reports.load.evidence import load_evidence
    from reports.render.files import write_file

    found = calibrate(load_evidence(options.run_folder), options.launches or LAUNCHES)
    if options.write is not None:
        write_file(options.write, found.model_dump_json(indent=1) + "\n", "give another --write")
    print("\n".join(lines(found.controls)))
    return DONE
