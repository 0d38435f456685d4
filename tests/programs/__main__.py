"""`python -m tests.programs [NAME...]`: trace the programs of known cause, and count how often the answer is right."""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from tests.traces import checked, load_index


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these programs alone")
    parser.add_argument("--gpu", action="store_true", help="on the GPU; default: the programs that are marked for it")
    parser.add_argument("--versions", nargs=2, default=("2.1.0", "2.5.0"), metavar="V", help="the good and the bad one")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="as many at a time")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the pages and logs; default: a folder that goes")
    return parser


def main(argv: list[str]) -> int:
    """Exit code: 0 every answer is right, 1 not every one."""
    given, index = parser().parse_args(argv), load_index()
    names = given.names or [name for name, case in index.items() if case.gpu or not given.gpu]
    unknown = [name for name in names if name not in index]
    if unknown:
        print(f"error: {', '.join(unknown)}: no such program", file=sys.stderr)
        return 2
    wrong = dict[str, list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        out = (given.out or Path(folder)).absolute()
        out.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(given.jobs, max_tasks_per_child=1) as pool:
            answers = pool.map(checked, names, repeat(out), repeat(tuple(given.versions)), repeat(given.gpu))
            for name, (verdict, problems) in zip(names, answers, strict=True):
                wrong[name] = problems
                print(f"{name:18} {verdict:16} {'; '.join(problems) or 'right'}", flush=True)
    for blind, label in ((False, "written with the code"), (True, "written down before it was traced")):
        group = [name for name in names if index[name].blind == blind]
        if group:
            print(f"{sum(not wrong[name] for name in group)} of {len(group)} right: {label}")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
