"""The options of `kernel-matrix`. One that several verbs take is declared here, once; its value types are here too."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from harness.errors import UNDECIDED, InputError, meant, nearest
from harness.typed import typed

EXECUTORS = ("auto", "docker", "venv", "bundle")
UNITS_S = {"s": 1, "m": 60, "h": 3600}


def none_of(word: str, known: Sequence[str]) -> str:
    """Return what is wrong with a word, and what may have been meant."""
    near = nearest(word, known)
    return f"{word!r} is none of {', '.join(known)}{f'; did you mean {near}?' if near else ''}"


class StoreOnce(argparse._StoreAction):
    """An option that has one value, and is refused where it is given twice."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if option and getattr(namespace, self.dest, self.default) is not self.default:
            raise InputError(f"{option} stands twice", "leave one of them out")
        super().__call__(parser, namespace, values, option)


class Parser(argparse.ArgumentParser):
    """A parser for which a wrong option is bad input like any other, with its exit code. Options cannot be abbreviated:
    the command is recorded as it was typed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Wide, **options})
        self.register("action", None, StoreOnce)

    def parse_args(self, words: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(words, namespace)
        if unknown:
            known = [name for name in self._option_string_actions if name.startswith("--")]
            near = meant(unknown[0].partition("=")[0], known)
            raise InputError(f"unrecognized arguments: {' '.join(unknown)}", near + self._see())
        return options

    def error(self, message: str) -> NoReturn:
        raise InputError(message, self._see())

    def _see(self) -> str:
        return f"see: {typed(*self.prog.split()[1:], '--help')}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, none_of(str(value), list(map(str, action.choices))))


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)


class Command(NamedTuple):
    """What a verb takes, and what it does: `run` returns the exit code."""

    add_options: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]


# -- types of values --------------------------------------------------------------------------------------------


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}")
        return value

    return number


def name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("is empty; a name belongs there")
    return text


def some_of(*known: str, alone: str = "") -> Callable[[str], tuple[str, ...]]:
    """Return a type that takes one of these words, or several with commas; `alone` stands for none of them."""

    def chosen(text: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
        if alone and alone in words:
            return ()
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(none_of(word, [*filter(None, [alone]), *known]))
        return words

    return chosen


def share(text: str) -> float:
    """Return a share between 0 and 1, such as 0.05 or 5%."""
    value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1 (100%)")
    return value


def multiple(text: str) -> float:
    """Return a factor above 0, such as 1.5."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def duration_s(text: str) -> float:
    """Return `90s`, `10m` or `2h` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 10m or 2h")
    return float(found[1]) * UNITS_S[found[2]]


# -- options that several verbs take ----------------------------------------------------------------------------


Options = argparse._ActionsContainer  # a parser, or a group of its options


def add_matrix(parser: Options) -> None:
    parser.add_argument("--matrix", type=Path, default=Path("matrix.yaml"), metavar="FILE", help="default: matrix.yaml")


def add_run_folder(parser: Options) -> None:
    latest = Path("reports", "latest")
    parser.add_argument("run_folder", nargs="?", type=Path, default=latest, metavar="RUN", help=f"default: {latest}")


def add_names(parser: Options, *names: str, default: str = "all") -> None:
    """Add --kernel, --workload and --torch: each may be given several times."""
    for option in names:
        metavar = "V" if option == "torch" else "NAME"
        what = f"this {'PyTorch version' if option == 'torch' else option} alone; may be repeated; default: {default}"
        parser.add_argument(f"--{option}", action="append", type=name, default=[], metavar=metavar, help=what)


def add_devices(parser: Options) -> None:
    names = some_of("cpu", "cuda", alone="auto")
    what = "cpu, cuda or both (cpu,cuda); default: auto, what is here"
    parser.add_argument("--device", type=names, default=(), metavar="D", help=what)


def add_base_image(parser: Options) -> None:
    parser.add_argument("--base-image", metavar="REF", help="container base of every environment, by digest or tag")


def add_strict(parser: Options, what: str = "refuse every fallback") -> None:
    parser.add_argument("--strict", action="store_true", help=what)


def add_executor(parser: Options, *, bundle: bool = True) -> None:
    """Add what says where the environments live and run."""
    choices = [name for name in EXECUTORS if bundle or name != "bundle"]
    parser.add_argument("--executor", choices=choices, default="auto", help="where environments run; default: auto")
    if bundle:
        parser.add_argument("--bundle", type=Path, metavar="DIR", help="a bundle; implies --executor bundle")
    add_base_image(parser)
    parser.add_argument(
        "--trust", action="store_true", help="run code from outside of the project even where no sandbox can be made"
    )


def add_list(parser: Options, what: str) -> None:
    parser.add_argument("--list", action="store_true", help=f"print {what}, and do nothing else")


def add_gates(parser: Options) -> None:
    """Add what the report is written to, and what in it fails the command."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the report there, not into the run's folder")
    parser.add_argument(
        "--fail-on",
        type=some_of("correctness", "latency", "memory", "exactness"),
        default=(),
        metavar="WHAT",
        help="fail where these regressed: correctness, latency, memory, exactness (correct, but less exact than "
        "before), or several with commas",
    )
    parser.add_argument(
        "--detect",
        type=share,
        metavar="SHARE",
        help="the slow-down that --fail-on latency must be able to see; where the launches are too few for it, the "
        f"exit code is {UNDECIDED}; default: 10%%",
    )
    parser.add_argument(
        "--count-missing", action="store_true", help="fast_p: a problem without a solution counts as unsolved"
    )
