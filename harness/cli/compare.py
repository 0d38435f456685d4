"""`kernel-matrix compare A B`: what moved between two runs, of a branch and of main for one. Nothing is measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import Parser, add_gates, add_names, add_strict
from harness.cli.report import judging
from harness.errors import UNDECIDED


def add_options(parser: Parser) -> None:
    for name, does in (("a", "the run that is the baseline"), ("b", "the run that is compared with it")):
        parser.add_argument(name, type=Path, metavar=name.upper(), help=f"{does}: its folder")
    add_names(parser, "torch")
    parser.add_argument(
        "--other-machine", action="store_true", help="compare runs of different machines, which the page says in red"
    )
    add_gates(parser)
    add_strict(parser, f"exit code {UNDECIDED} where what --fail-on names is undecided")


def run(options: argparse.Namespace) -> int:
    from reports.render.commands import render_two

    return render_two(
        options.a, options.b, torch=options.torch, other_machine=options.other_machine, **judging(options)
    )
