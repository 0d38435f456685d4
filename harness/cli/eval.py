"""`kernel-matrix eval`: one environment, against the baseline's stored validation, timed alone."""

from harness.cli.matrix import add_shared_options, run
from harness.cli.options import Parser

__all__ = ["add_options", "run"]


def add_options(parser: Parser) -> None:
    parser.add_argument("--torch", required=True, metavar="V", help="a PyTorch version of matrix.yaml")
    add_shared_options(parser)
