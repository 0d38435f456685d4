"""The options of `python -m harness sweep`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from harness.cli.options import Parser

UNITS_S = {"s": 1, "m": 60, "h": 3600}


def duration_s(text: str) -> float:
    """`90s`, `10m` or `2h` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 10m or 2h")
    return float(found[1]) * UNITS_S[found[2]]


def add_sweep_parser(verbs: Any, shared: Parser) -> None:
    options: argparse.ArgumentParser = verbs.add_parser(
        "sweep", parents=[shared], help="the fastest setting of a kernel's tunables that is right everywhere"
    )
    options.add_argument("--kernel", required=True, metavar="NAME", help="a kernel of matrix.yaml with a `search`")
    options.add_argument(
        "--workload", action="append", required=True, metavar="NAME", help="a name or an id; may be repeated"
    )
    options.add_argument(
        "--budget",
        type=duration_s,
        default=600.0,
        metavar="TIME",
        help="of the search, such as 90s, 10m (the default) or 2h; what confirms its result comes on top",
    )
    options.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="auto: cuda where it can be")
    options.add_argument(
        "--executor", choices=["auto", "docker", "venv", "bundle"], default="auto", help="default: auto"
    )
    options.add_argument("--bundle", type=Path, metavar="DIR", help="an unpacked bundle: its executor is bundle")
    options.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    options.add_argument("--strict", action="store_true", help="refuse every fallback; 40 where nothing is confirmed")
    options.add_argument("--write", action="store_true", help="write a confirmed winner into matrix.yaml")
    options.add_argument("--list", action="store_true", help="print what would be searched, and do nothing else")
    options.add_argument("--run-path", type=Path, help="write the path of the sweep's folder to this file")
