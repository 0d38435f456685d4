"""`kernel-matrix gate`: is a kernel fast enough, and correct everywhere? By a run's records, or by a run made first."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from harness.cli import matrix
from harness.cli.options import Command, Parser, add_names, add_run_folder, multiple, share, some_of
from harness.config.matrix import Reference
from harness.errors import exit_code
from harness.worker import protocol


def add_options(parser: Parser) -> None:
    add_run_folder(parser)
    add_names(parser, "kernel", "workload")
    known = (*get_args(Reference), protocol.MODEL)
    what = f"{', '.join(known)}; default: what PyTorch picks, `default`"
    parser.add_argument("--reference", choices=known, metavar="NAME", help=what)
    parser.add_argument(
        "--at-most", type=share, metavar="SHARE", help="of the reference's time that the kernel may take; default: 0.95"
    )
    parser.add_argument(
        "--memory-at-most",
        type=multiple,
        metavar="N",
        help="times the reference's peak memory that the kernel may use, such as 1.5; default: it is not judged",
    )
    parser.add_argument("--times", type=some_of("cold", "hot"), metavar="cold,hot", help="on a GPU; default: both")
    parser.add_argument("--make", nargs=argparse.REMAINDER, help="make the run first: options of `matrix` follow")


def run(options: argparse.Namespace) -> int:
    if options.make is None:
        return judge(options.run_folder, options)
    parser = Parser(prog="kernel-matrix gate --make")
    matrix.add_matrix_options(parser)
    making = parser.parse_args(options.make, argparse.Namespace(verb="matrix", given=options.make))
    if making.list:
        return matrix.run(making)
    made, codes = matrix.measure(making)
    return exit_code([*codes, judge(made.folder, options)])


def judge(folder: Path, options: argparse.Namespace) -> int:
    """Print the judgement of a run. Return its exit code."""
    from reports.compare.gate import AT_MOST
    from reports.render.commands import judge_gate

    return judge_gate(
        folder,
        kernels=options.kernel,
        workloads=options.workload,
        reference=options.reference,
        at_most=options.at_most or AT_MOST,
        modes=options.times or ("cold", "hot"),
        memory_at_most=options.memory_at_most,
    )


COMMANDS = {"gate": Command(add_options, run)}
