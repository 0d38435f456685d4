"""What `python -m harness` takes: its verbs and their options."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from harness.cli.options import Parser, positive, run_options
from harness.search.bisect.options import add_bisect_parser
from harness.search.sweep.options import add_sweep_parser


def _architecture(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no compute capability without its dot, such as 80 or 90")
    return text


def make_parser() -> Parser:
    parser = Parser(
        prog="python -m harness",
        description="The matrix and what serves it; `python -m reports` renders what it records.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    shared = Parser(add_help=False)
    shared.add_argument("--matrix", type=Path, default=Path("matrix.yaml"), help="default: matrix.yaml")
    running = run_options()
    verbs.add_parser("matrix", parents=[shared, running], help="every environment, in blocks")
    only = verbs.add_parser("eval", parents=[shared, running], help="one environment, timed alone")
    only.add_argument("--torch", required=True, help="a PyTorch version of matrix.yaml")
    explaining = verbs.add_parser("explain", parents=[shared], help="the experiments that a finished run calls for")
    explaining.add_argument("run_folder", nargs="?", type=Path, metavar="RUN", help="default: reports/latest")
    explaining.add_argument("--kernel", action="append", default=[], metavar="NAME", help="may be repeated")
    explaining.add_argument("--workload", action="append", default=[], metavar="NAME", help="may be repeated")
    explaining.add_argument("--torch", action="append", default=[], metavar="V", help="may be repeated")
    explaining.add_argument("--all", action="store_true", help="every suspect, not the smallest of each kernel alone")
    explaining.add_argument("--bundle", type=Path, metavar="DIR", help="where the run's bundle is unpacked")
    explaining.add_argument("--run-path", type=Path, help="write the path of the run's folder to this file")
    verbs.add_parser("pins", parents=[shared], help="resolve docker/pins/ again")
    doctor = verbs.add_parser("doctor", parents=[shared], help="what this machine has and lacks")
    doctor.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    images = verbs.add_parser("images", parents=[shared], help="the container images: list, build, check, remove, base")
    images.add_argument("action", choices=["list", "build", "check", "remove", "base"], nargs="?", default="list")
    images.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    images.add_argument("--all", action="store_true", help="remove: also those that this matrix uses, and bases")
    images.add_argument("--strict", action="store_true", help="refuse every fallback")
    bundle = verbs.add_parser("bundle", parents=[shared], help="the images, for a host without engine or registry")
    bundle.add_argument(
        "--arch", type=_architecture, required=True, help="the GPUs' compute capability without its dot, such as 90"
    )
    bundle.add_argument("--part-mb", type=positive, default=60, metavar="N", help="most megabytes a part, default 60")
    bundle.add_argument("--out", type=Path, metavar="DIR", help="default: bundle-ARCH")
    bundle.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    bundle.add_argument("--torch", action="append", default=[], metavar="V", help="that version; may be repeated")
    bundle.add_argument("--level", type=int, choices=range(1, 20), default=12, metavar="N", help="zstd's, default 12")
    bundle.add_argument("--strict", action="store_true", help="refuse every fallback")
    add_bisect_parser(verbs, shared)
    add_sweep_parser(verbs, shared)
    schema = verbs.add_parser("schema", help="the JSON Schema of matrix.yaml")
    schema.add_argument("--write", type=Path, metavar="FILE")
    return parser
