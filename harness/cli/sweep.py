"""`kernel-matrix sweep`: the fastest setting of a kernel's tunables that is correct everywhere; then its report."""

from __future__ import annotations

import argparse

from harness.cli.matrix import shared_options
from harness.cli.options import Parser, add_executor, add_list, add_matrix, add_strict, duration_s
from harness.cli.report import report_search
from harness.errors import DONE, UNDECIDED
from harness.search.sweep import run_sweep


def add_options(parser: Parser) -> None:
    parser.add_argument("--kernel", required=True, metavar="NAME", help="a kernel of matrix.yaml with a `search`")
    several = "a name or an id; may be repeated"
    parser.add_argument("--workload", action="append", required=True, metavar="NAME", help=several)
    budget = "of the search, such as 90s, 10m (the default) or 2h; confirming its result takes more"
    parser.add_argument("--budget", type=duration_s, default=600.0, metavar="TIME", help=budget)
    add_matrix(parser)
    add_list(parser, "what would be searched")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="auto: cuda where it can be")
    add_executor(parser)
    add_strict(parser, "refuse every fallback; exit code 40 where nothing is confirmed")


def run(options: argparse.Namespace) -> int:
    how = shared_options(options)
    found = run_sweep(
        how, options.kernel, options.workload, options.device, budget_s=options.budget, list_only=options.list
    )
    if found is None:
        return DONE
    folder, record = found
    print(f"records: {folder}", flush=True)
    report_search(folder)
    return UNDECIDED if options.strict and record.winner is None else DONE
