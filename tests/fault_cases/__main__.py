"""`python -m tests.fault_cases`: run the cases, explain them, and count how often the attribution is right."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.errors import HarnessError
from harness.gpu import gpus
from harness.interrupts import as_interrupts
from tests.fault_cases.run import Options, run_cases, score_again


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_cases", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", action="extend", default=[], metavar="NAME", help="these cases alone")
    add("--round", nargs="+", action="extend", default=[], metavar="R", help="of these rounds, such as held_out-3")
    add("--split", choices=["development", "held_out"], help="default: both")
    add("--device", choices=["cpu", "cuda"], action="append", default=[], help="may be repeated; default: both")
    add("--again", type=Path, metavar="DIR", help="score the runs stored there by the rules of today, and run nothing")
    add("--no-causes", action="store_true", help="only what the cases show: nothing is explained")
    add("--executor", choices=["auto", "docker", "venv", "bundle"], default="auto")
    add("--bundle", type=Path, metavar="DIR", help="an unpacked bundle: its executor is bundle")
    add("--base-image", metavar="REF", help="container base for every environment")
    add("--out", type=Path, metavar="DIR", help="of the projects and results.json; default: reports/fault_cases")
    return parser


def main(argv: list[str]) -> int:
    """Exit code: 0 done, 1 a case did not show what it must; otherwise that of the error."""
    given = parser().parse_args(argv)
    if not given.device and not given.again and not gpus():
        print("no GPU here: the cases for CUDA are left out")
        given.device = ["cpu"]
    where = [f"--executor={given.executor}"]
    where += [f"--bundle={given.bundle.absolute()}"] if given.bundle else []
    where += [f"--base-image={given.base_image}"] if given.base_image else []
    options = Options(
        split=given.split,
        rounds=tuple(given.round),
        devices=tuple(given.device),
        only=tuple(given.only),
        executor=tuple(where),
        causes=not given.no_causes,
        **({"out": given.out.absolute()} if given.out else {}),
    )
    try:
        if given.again:
            score_again(options, given.again)
        else:
            with as_interrupts():
                code, path = run_cases(options)
            print(f"results: {path}")
            return code
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
