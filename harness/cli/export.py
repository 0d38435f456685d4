"""`kernel-matrix export`: a run's times and memory, for services that draw them over time. Nothing is measured."""

from __future__ import annotations

import argparse

from harness.cli.options import Parser, add_run_folder
from harness.errors import DONE

FORMATS = ("bencher", "github-action-benchmark")


def add_options(parser: Parser) -> None:
    add_run_folder(parser)
    parser.add_argument("--format", choices=FORMATS, required=True, help="who reads it; it goes to standard output")


def run(options: argparse.Namespace) -> int:
    from reports.load.evidence import load_evidence
    from reports.render.export import Format, render_export

    print(render_export(load_evidence(options.run_folder), Format(options.format)))
    return DONE
