"""python -m reports: records in, report out.

python -m reports [RUN] [--calibration FILE]     the report of a run
python -m reports control RUN [--write FILE]     what its controls say of the procedure
python -m reports bisection FOLDER               a bisection's page and summary
python -m reports sweep FOLDER                   a sweep's leaderboard
python -m reports gate [RUN] [--reference NAME]  whether a kernel is fast enough, and correct everywhere
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.cli.options import Parser, run_options, share
from harness.errors import InputError
from reports import commands, model
from reports.compare.control import LAUNCHES
from reports.compare.gate import AT_MOST


def _at_least_two(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError("must be at least 2")
    return value


def _modes(text: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(text.split(",")))
    unknown = next((word for word in wanted if word not in (model.COLD, model.HOT)), None)
    if unknown is not None:
        raise argparse.ArgumentTypeError(f"{unknown!r} is neither cold nor hot")
    return wanted


def _run(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m reports", description="Render a run's report from its records.",
                    parents=[run_options()])  # fmt: skip
    parser.add_argument("run_folder", nargs="?", type=Path, default=commands.LATEST, help=f"default: {commands.LATEST}")
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help=f"cite the controls of another run; default: {commands.CALIBRATION} in the run's folder, if it is there",
    )
    given = parser.parse_args(arguments)
    return commands.render_run(
        given.run_folder,
        out=given.out,
        calibration=given.calibration,
        count_missing=given.count_missing,
        fail_on=given.fail_on,
        strict=given.strict,
        detect=given.detect,
    )


def _control(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m reports control", description="What the controls of a run say of its procedure.")
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--launches", type=_at_least_two, default=LAUNCHES,
                        help=f"blocks in a trial; default: {LAUNCHES}")  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="store it, for the pages of other runs to cite")
    given = parser.parse_args(arguments)
    return commands.judge_controls(given.run_folder, launches=given.launches, write=given.write)


def _gate(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m reports gate", description="Is a kernel fast enough, and correct everywhere?")
    parser.add_argument("run_folder", nargs="?", type=Path, default=commands.LATEST, metavar="RUN")
    for name in ("--kernel", "--workload"):
        parser.add_argument(name, action="append", default=[], metavar="NAME", help="default: all; may be repeated")
    parser.add_argument("--reference", metavar="NAME", help="default: what PyTorch picks, `default`")
    parser.add_argument("--at-most", type=share, default=AT_MOST, metavar="SHARE", help=f"default: {AT_MOST:g}")
    parser.add_argument("--times", type=_modes, default=(model.COLD, model.HOT), metavar="cold,hot",
                        help="on a GPU; default: both")  # fmt: skip
    given = parser.parse_args(arguments)
    return commands.judge_gate(
        given.run_folder,
        kernels=given.kernel,
        workloads=given.workload,
        reference=given.reference,
        at_most=given.at_most,
        modes=given.times,
    )


def _folder(word: str, arguments: Sequence[str]) -> Path:
    parser = Parser(prog=f"python -m reports {word}", description=f"Render a {word} from its record.")
    parser.add_argument("folder", type=Path, help=f"a folder of reports/{word}s/")
    folder: Path = parser.parse_args(arguments).folder
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    word, rest = (given[0], given[1:]) if given else ("", [])
    try:
        if word == "control":
            return _control(rest)
        if word == "gate":
            return _gate(rest)
        if word == "bisection":
            return commands.render_bisection(_folder(word, rest))
        if word == "sweep":
            return commands.render_sweep(_folder(word, rest))
        return _run(given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
