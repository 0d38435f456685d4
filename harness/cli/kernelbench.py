"""`kernel-matrix kernelbench`: a matrix of KernelBench's problems, each with its solution in place of a kernel."""

from pathlib import Path

from harness.cli.matrix import add_shared_options, run
from harness.cli.options import Parser

__all__ = ["add_options", "run"]


def add_options(parser: Parser) -> None:
    parser.add_argument("problems", type=Path, metavar="PROBLEMS", help="folder of problems, in KernelBench's form")
    parser.add_argument("solutions", type=Path, metavar="SOLUTIONS", help="their solutions: files of the same names")
    add_shared_options(parser)
