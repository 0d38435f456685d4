"""`kernel-matrix specimens`: kernels of known cause, run and explained: how often is the attribution right?"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import Parser, add_executor, add_list, add_matrix
from harness.errors import DONE
from harness.gpu import gpus
from harness.specimens.again import ask_again
from harness.specimens.format import load_specimens
from harness.specimens.running import SPECIMENS, Options, chosen, coverage, run_specimens


def add_options(parser: Parser) -> None:
    add_matrix(parser)
    parser.add_argument("--half", choices=["development", "held_out"], help="default: both")
    parser.add_argument("--device", choices=["cpu", "cuda"], action="append", default=[], help="default: what is here")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME")
    parser.add_argument("--no-causes", action="store_true", help="only what they show: nothing is explained")
    parser.add_argument("--again", type=Path, metavar="DIR", help="run nothing: attribute the runs that are there")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of their projects and results.json")
    add_list(parser, "their causes and scenarios")
    add_executor(parser)


def run(arguments: argparse.Namespace) -> int:
    devices = arguments.device
    if not devices and not arguments.list and not arguments.again and not gpus():
        print("no GPU here: those for CUDA are left out")
        devices = ["cpu"]
    where = [f"--executor={arguments.executor}"]
    where += [f"--bundle={arguments.bundle.absolute()}"] if arguments.bundle else []
    where += [f"--base-image={arguments.base_image}"] if arguments.base_image else []
    options = Options(
        matrix_path=arguments.matrix,
        half=arguments.half,
        devices=tuple(devices),
        only=tuple(arguments.only),
        out=arguments.out.absolute() if arguments.out else None,
        executor=tuple(where),
        causes=not arguments.no_causes,
    )
    if arguments.list:
        specimens = chosen(load_specimens(options.root / SPECIMENS), options)
        for name, specimen in specimens.items():
            print(f"{name} ({specimen.device}, {specimen.half}): {', '.join(specimen.causes)}\n    {specimen.story}")
        print(coverage(specimens))
        return DONE
    if arguments.again:
        ask_again(options, arguments.again)
        return DONE
    code, path = run_specimens(options)
    print(f"results: {path}")
    return code
