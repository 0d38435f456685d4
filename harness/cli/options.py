"""The options that `python -m harness` and `python -m reports` share: one list, so that both take the same."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UNDECIDED, InputError
from harness.schema.records import Device

ASPECTS = ("correctness", "latency", "exactness")
DETECT = 0.1


class Parser(argparse.ArgumentParser):
    """A wrong option is bad input like any other, with its code; options are written out, for others read them too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise InputError(message, f"see: {self.prog} --help")


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def devices(text: str) -> tuple[Device, ...]:
    chosen: list[Device] = []
    for name in text.split(","):
        if name == "auto":
            return ()
        if name not in ("cpu", "cuda"):
            raise argparse.ArgumentTypeError(f"{name!r} is not auto, cpu or cuda")
        chosen.append("cpu" if name == "cpu" else "cuda")
    return tuple(dict.fromkeys(chosen))


def _aspects(text: str) -> frozenset[str]:
    wanted = frozenset(word.strip() for word in text.split(",") if word.strip())
    if not wanted:
        raise argparse.ArgumentTypeError(f"names nothing: give {', '.join(ASPECTS)}, or several with commas")
    unknown = sorted(wanted - set(ASPECTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(ASPECTS)}")
    return wanted


def share(text: str) -> float:
    """A share between 0 and 1, as 0.05 or 5%."""
    value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1 (100%)")
    return value


def run_options() -> Parser:
    """A parent parser. Each command ignores what only the other acts on."""
    options = Parser(add_help=False)
    options.add_argument("--list", action="store_true", help="print the plan and do nothing else")
    options.add_argument(
        "--executor", choices=["auto", "docker", "venv", "bundle"], default="auto", help="default: auto"
    )
    options.add_argument("--bundle", type=Path, metavar="DIR", help="an unpacked bundle: its executor is bundle")
    options.add_argument("--base-image", metavar="REF", help="container base for every environment, by digest or tag")
    options.add_argument("--device", type=devices, default=(), metavar="auto|cpu|cuda|cpu,cuda")
    options.add_argument("--kernel", action="append", default=[], metavar="NAME", help="may be repeated")
    options.add_argument("--workload", action="append", default=[], metavar="NAME", help="may be repeated")
    options.add_argument("--launches", type=positive, metavar="N")
    options.add_argument("--trials", type=positive, metavar="N")
    options.add_argument("--quick", action="store_true", help="few trials and launches")
    options.add_argument("--strict", action="store_true", help="refuse every fallback")
    options.add_argument("--fresh", action="store_true", help="measure again what is already recorded")
    options.add_argument(
        "--explain",
        choices=["auto", "never"],
        default="auto",
        help="auto: experiments where correctness moved or something is wrong",
    )
    options.add_argument(
        "--profile", action="store_true", help="hardware counters of CUDA kernels too, by Nsight Compute where it is"
    )
    options.add_argument("--problems", type=Path, metavar="DIR", help="of KernelBench's form, instead of the kernels")
    options.add_argument("--solutions", type=Path, metavar="DIR", help="ModelNew files of the same names")
    options.add_argument("--sample", type=int, default=0, metavar="N", help="of KernelBench's own runs, default 0")
    options.add_argument(
        "--dtype", choices=["float16", "bfloat16", "float32"], default="float32", help="of --problems, default float32"
    )
    options.add_argument(
        "--count-missing", action="store_true", help="fast_p: a problem without a solution counts as not solved"
    )
    options.add_argument("--run-path", type=Path, help="write the path of the run's folder to this file")
    options.add_argument("--out", type=Path, metavar="DIR", help="write the report there, not into the run's folder")
    options.add_argument(
        "--fail-on",
        type=_aspects,
        default=frozenset(),
        metavar="WHAT",
        help="correctness, latency, exactness (right as before, and less exact), or several with commas",
    )
    options.add_argument(
        "--detect",
        type=share,
        default=DETECT,
        metavar="SHARE",
        help="the smallest slow-down that --fail-on latency must not miss: where the launches made could not have "
        f"called it, it exits with {UNDECIDED}; default {DETECT:.0%}".replace("%", "%%"),
    )
    return options
