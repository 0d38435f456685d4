"""`python -m tests.programs [NAME...]`: trace the programs of known cause, and count how often the answer is right."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from tests.traces import Expected, load_index, mistakes, traced


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these programs alone")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the pages and logs; default: a folder that goes")
    return parser


def checked(name: str, case: Expected, out: Path) -> tuple[str, list[str]]:
    """The verdict, and what is wrong with the answer."""
    with (out / f"{name}.log").open("w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            code, found = traced(name, out / name)
        except Exception as error:  # a mistake of ours is no reason to leave the others out
            return "crash", [repr(error)]
    return found.get("verdict", ""), mistakes(case, code, found)


def main(argv: list[str]) -> int:
    """Exit code: 0 every answer is right, 1 not every one."""
    given, index = parser().parse_args(argv), load_index()
    names = given.names or list(index)
    unknown = [name for name in names if name not in index]
    if unknown:
        print(f"error: {', '.join(unknown)}: no such program", file=sys.stderr)
        return 2
    wrong = dict[str, list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        out = (given.out or Path(folder)).absolute()
        out.mkdir(parents=True, exist_ok=True)
        for name in names:
            verdict, wrong[name] = checked(name, index[name], out)
            print(f"{name:18} {verdict:16} {'; '.join(wrong[name]) or 'right'}", flush=True)
    for blind, label in ((False, "written with the code"), (True, "written down before it was traced")):
        group = [name for name in names if index[name].blind == blind]
        if group:
            print(f"{sum(not wrong[name] for name in group)} of {len(group)} right: {label}")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
