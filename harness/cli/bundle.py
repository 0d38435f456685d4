"""`kernel-matrix bundle`: the images, packed for a host that has neither a container engine nor a registry."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import (
    Parser,
    add_base_image,
    add_matrix,
    add_names,
    add_strict,
    architecture,
    at_least,
    some_of,
)
from harness.isolate.bundle.pack import Options, run_bundle
from harness.isolate.bundle.slim import COMPONENTS


def add_options(parser: Parser) -> None:
    add_matrix(parser)
    parser.add_argument("--arch", type=architecture, required=True, help="compute capability of the GPUs there, as 90")
    parser.add_argument("--part-mb", type=at_least(1), default=60, metavar="N", help="megabytes of a part; default: 60")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: bundle-ARCH")
    parser.add_argument("--level", type=int, choices=range(1, 20), default=12, metavar="N", help="of zstd; default: 12")
    parser.add_argument(
        "--keep",
        type=some_of(*COMPONENTS),
        default=[],
        metavar="NAMES",
        help="keep what is left out unless a problem of the matrix calls it, as fft,sparse: "
        + "; ".join(f"{name} ({component.what})" for name, component in COMPONENTS.items()),
    )
    add_names(parser, "torch")
    add_base_image(parser)
    add_strict(parser)


def run(options: argparse.Namespace) -> int:
    return run_bundle(
        Options(
            matrix_path=options.matrix,
            architecture=options.arch,
            out=(options.out or Path(f"bundle-{options.arch}")).absolute(),
            part_mb=options.part_mb,
            level=options.level,
            base_image=options.base_image,
            torch=tuple(options.torch),
            keep=tuple(options.keep),
            strict=options.strict,
        )
    )
