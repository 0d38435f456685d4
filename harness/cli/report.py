"""`kernel-matrix report`: the report of a run, a bisection or a sweep, from its records. Nothing is measured.

The command line alone knows `reports`; nothing else in `harness` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cli.options import Parser, add_gates, add_run_folder, add_strict
from harness.errors import UNDECIDED, exit_code

MACHINES = "machines"


def add_options(parser: Parser) -> None:
    add_run_folder(parser)
    add_gates(parser)
    add_strict(parser, f"exit code {UNDECIDED} where what --fail-on names is undecided")
    parser.add_argument(
        "--beside",
        action="append",
        type=Path,
        default=[],
        metavar="RUN",
        help="also a page with this run's devices beside those of RUN; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    folder: Path = options.run_folder
    if options.beside:
        runs = [folder, *options.beside]
        codes = [report_run(each, argparse.Namespace(**vars(options) | {"out": None})) for each in runs]
        out = options.out or runs[0].resolve().parents[1] / MACHINES
        return exit_code([*codes, report_side_by_side(runs, out)])
    if any((folder / name).is_file() for name in ("bisection.json", "sweep.json")):
        return report_search(folder)
    return report_run(folder, options)


def report_run(folder: Path, options: argparse.Namespace) -> int:
    """Write the report of a run. Its exit code."""
    from reports.render.commands import render_run

    return render_run(folder, **judging(options))


def report_side_by_side(runs: Sequence[Path], out: Path) -> int:
    """Write one page over several runs that have their reports."""
    from reports.render.commands import render_side_by_side

    return render_side_by_side(runs, out)


def judging(options: argparse.Namespace) -> dict[str, Any]:
    """Where the report goes, and what fails the command: `add_gates` and `add_strict`, as `render_run` takes them."""
    from reports.compare.exit_codes import DETECT

    return {
        "out": options.out,
        "count_missing": options.count_missing,
        "fail_on": frozenset(options.fail_on),
        "strict": options.strict,
        "detect": options.detect or DETECT,
    }


def report_search(folder: Path) -> int:
    """Write the report of a bisection or a sweep. InputError where it is not finished."""
    from reports.render.commands import render_search

    return render_search(folder)
