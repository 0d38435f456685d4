"""The options of `python -m harness bisect`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.cli.options import ASPECTS, Parser, devices, positive
from harness.worker import protocol


def add_bisect_parser(verbs: Any, shared: Parser) -> None:
    options: argparse.ArgumentParser = verbs.add_parser(
        "bisect", parents=[shared], help="the first PyTorch release between two at which something differs"
    )
    options.add_argument("--good", required=True, metavar="V", help="the earlier release, such as 2.1.0")
    options.add_argument("--bad", required=True, metavar="V", help="the later one")
    options.add_argument("--what", choices=ASPECTS, default="correctness", help="default: correctness")
    options.add_argument(
        "--target", default=protocol.KERNEL, metavar="NAME", help="kernel (the default), or a reference such as math"
    )
    options.add_argument("--kernel", action="append", default=[], metavar="NAME", help="default: all; may be repeated")
    options.add_argument(
        "--workload", action="append", default=[], metavar="NAME", help="default: all; may be repeated"
    )
    options.add_argument("--device", type=devices, default=(), metavar="auto|cpu|cuda|cpu,cuda")
    options.add_argument(
        "--trials", type=positive, metavar="N", help="at the first look; more are asked for if unclear"
    )
    options.add_argument(
        "--every", action="store_true", help="ask every release, not only those that halve what is left"
    )
    options.add_argument("--keep", action="store_true", help="keep the environments of the releases between")
    options.add_argument("--executor", choices=["auto", "docker", "venv"], default="auto", help="default: auto")
    options.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    options.add_argument("--strict", action="store_true", help="refuse every fallback; 40 where a version is undecided")
    options.add_argument("--list", action="store_true", help="print the releases between, and do nothing else")
    options.add_argument("--run-path", type=Path, help="write the path of the bisection's folder to this file")
