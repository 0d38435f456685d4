"""`kernel-matrix schema`: the JSON Schema of matrix.yaml."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness.cli.options import Parser
from harness.config.matrix import json_schema
from harness.errors import DONE
from harness.worker import protocol


def add_options(parser: Parser) -> None:
    parser.add_argument("--write", type=Path, metavar="FILE", help="default: print it")


def run(options: argparse.Namespace) -> int:
    text = json.dumps(json_schema(), indent=2) + "\n"
    if options.write:
        protocol.write_atomically(str(options.write), text.encode())
    else:
        print(text, end="")
    return DONE
