"""What is read from records, and measures nothing: `kernel-matrix report`, `compare` and `export`.

The command line alone knows `reports`; nothing else in `harness` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cli.options import Command, Parser, add_gates, add_names, add_run_folder, add_strict
from harness.errors import DONE, UNDECIDED, exit_code

MACHINES = "machines"
FORMATS = ("bencher", "github-action-benchmark")


def add_judging(parser: Parser) -> None:
    add_gates(parser)
    add_strict(parser, f"exit code {UNDECIDED} where what --fail-on names is undecided")


def judging(options: argparse.Namespace) -> dict[str, Any]:
    """Return where the report goes, and what fails the command: `add_judging`, as `render_run` takes it."""
    from reports.compare.exit_codes import DETECT

    return {
        "out": options.out,
        "count_missing": options.count_missing,
        "fail_on": frozenset(options.fail_on),
        "strict": options.strict,
        "detect": options.detect or DETECT,
    }


# -- report -----------------------------------------------------------------------------------------------------


def add_report_options(parser: Parser) -> None:
    add_run_folder(parser)
    add_judging(parser)
    parser.add_argument(
        "--beside",
        action="append",
        type=Path,
        default=[],
        metavar="RUN",
        help="also a page with this run's devices beside those of RUN; may be repeated",
    )


def report(options: argparse.Namespace) -> int:
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
    """Write the report of a run; return its exit code."""
    from reports.render.commands import render_run

    return render_run(folder, **judging(options))


def report_side_by_side(runs: Sequence[Path], out: Path) -> int:
    """Write one page over several runs that have their reports."""
    from reports.render.commands import render_side_by_side

    return render_side_by_side(runs, out)


def report_search(folder: Path) -> int:
    """Write the report of a bisection or a sweep. InputError where it is not finished."""
    from reports.render.commands import render_search

    return render_search(folder)


# -- compare ----------------------------------------------------------------------------------------------------


def add_compare_options(parser: Parser) -> None:
    for name, does in (("a", "the run that is the baseline"), ("b", "the run that is compared with it")):
        parser.add_argument(name, type=Path, metavar=name.upper(), help=f"{does}: its folder")
    add_names(parser, "torch")
    parser.add_argument(
        "--other-machine", action="store_true", help="compare runs of different machines, which the page says in red"
    )
    add_judging(parser)


def compare(options: argparse.Namespace) -> int:
    from reports.render.commands import render_two

    return render_two(
        options.a, options.b, torch=options.torch, other_machine=options.other_machine, **judging(options)
    )


# -- export -----------------------------------------------------------------------------------------------------


def add_export_options(parser: Parser) -> None:
    add_run_folder(parser)
    parser.add_argument("--format", choices=FORMATS, required=True, help="who reads it; it goes to standard output")


def export(options: argparse.Namespace) -> int:
    from reports.load.evidence import load_evidence
    from reports.render.export import Format, render_export

    print(render_export(load_evidence(options.run_folder), Format(options.format)))
    return DONE


COMMANDS = {
    "report": Command(add_report_options, report),
    "compare": Command(add_compare_options, compare),
    "export": Command(add_export_options, export),
}
