"""`python -m tests.programs [NAME...]`: trace the programs of known cause, and count how often the answer is right."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.traces import VERSIONS, check, load_programs


def main(argv: list[str]) -> int:
    """Exit code: 0 every answer is right, 1 not every one."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    programs = load_programs()
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("--gpu", action="store_true", help="on the GPU; default: the programs that are marked for it")
    parser.add_argument("--versions", nargs=2, default=VERSIONS, metavar="V", help="the good and the bad one")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the pages and logs; default: a temporary folder")
    options = parser.parse_args(argv)
    names = options.names or [name for name, program in programs.items() if program.gpu or not options.gpu]
    if unknown := [name for name in names if name not in programs]:
        parser.error(f"{', '.join(unknown)}: no such program")
    right = dict[str, bool]()
    with tempfile.TemporaryDirectory() as folder:
        out = (options.out or Path(folder)).absolute()
        out.mkdir(parents=True, exist_ok=True)
        for name in names:
            verdict, mistakes = check(name, out, tuple(options.versions), options.gpu)
            right[name] = not mistakes
            print(f"{name:18} {verdict:16} {'; '.join(mistakes) or 'right'}", flush=True)
    for blind, label in ((False, "written with the code"), (True, "written down before it was traced")):
        group = [right[name] for name in names if programs[name].blind == blind]
        print(f"{sum(group)} of {len(group)} right: {label}")
    return int(not all(right.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
