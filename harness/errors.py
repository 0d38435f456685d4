"""The one error tree. An error says what is wrong, where, and the next thing to type.

The command line catches `HarnessError` once, at the top, and exits with its code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.typed import as_typed

DONE = 0
CORRECTNESS_REGRESSED = 10
LATENCY_REGRESSED = 11
MEMORY_REGRESSED = 12
BUILD_FAILED = 20
INFRASTRUCTURE = 30
UNDECIDED = 40
BAD_INPUT = 64

# Where several hold, the first one of this order is the exit code.
PRECEDENCE = (
    BAD_INPUT,
    INFRASTRUCTURE,
    BUILD_FAILED,
    CORRECTNESS_REGRESSED,
    LATENCY_REGRESSED,
    MEMORY_REGRESSED,
    UNDECIDED,
)


START_AGAIN = "start the same command again: what was finished is kept, and what is gone is made again"


def exit_code(codes: Iterable[int]) -> int:
    """The one code to exit with when all of `codes` hold; 0 for none."""
    held = set(codes)
    return next((code for code in PRECEDENCE if code in held), DONE)


ALSO_CALLED = {
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "gpu": "cuda",
}


def nearest(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    """The known name that this may be a misspelling of, or another name for; empty where none is close."""
    names = list(known)
    other = ALSO_CALLED.get(name.lower(), "")
    return other if other in names else next(iter(difflib.get_close_matches(name, names, 1, alike)), "")


def meant(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    """A question for the beginning of a remedy; empty where no known name is close."""
    near = nearest(name, known, alike)
    return f"did you mean {near}? " if near else ""


class HarnessError(Exception):
    """Something the user can act on; `remedy` is what to do next."""

    code = INFRASTRUCTURE

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        problem, _, inner = message.partition("\n  remedy: ")  # of an error that was told as a record's message
        self.message = as_typed(problem)
        self.remedy = as_typed("; ".join(dict.fromkeys(filter(None, (inner, remedy)))))

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message


class InputError(HarnessError):
    """The user's input (matrix.yaml, an option, a pin file, a record) cannot be accepted."""

    code = BAD_INPUT


@dataclass(frozen=True, kw_only=True)
class InputProblem:
    """One of several things that cannot work. `where`: file and line."""

    where: str
    what: str
    remedy: str


def refusal(problems: Sequence[InputProblem]) -> InputError | None:
    """All of them as one error; None where there is none."""
    if not problems:
        return None
    if len(problems) == 1:
        (one,) = problems
        return InputError(f"{one.where}: {one.what}", one.remedy)
    lines = [f"{each.where}: {each.what}\n    -> {each.remedy}" for each in problems]
    return InputError("\n  ".join([f"{len(lines)} problems", *lines]), "correct them, then start again")


def refuse_unknown(option: str, wanted: Iterable[str], known: Iterable[str], place: str = "matrix.yaml") -> None:
    """Raise InputError where one of the names that an option was given is not among the known ones."""
    names = list(dict.fromkeys(known))
    for name in wanted:
        if name not in names:
            remedy = f"{meant(name, names)}choose from: {', '.join(names)}"
            raise InputError(f"--{option} {name}: not in {place}", remedy)


class RecordError(InputError):
    """A record file that cannot be trusted."""

    def __init__(self, path: str, problem: str, other_way: str = "") -> None:
        way = "delete the file, and start the same command again to measure it anew"
        super().__init__(f"{path}: {problem}", f"{way}; or {other_way}" if other_way else way)


class InfrastructureError(HarnessError):
    """The machine, a package index or a tool does not do what is needed."""

    code = INFRASTRUCTURE


class DiskFull(InfrastructureError):
    def __init__(self, where: object, problem: str) -> None:
        super().__init__(
            f"{where}: {problem}", "free some space; then start the same command again: what was finished is kept"
        )


class Unrecorded(InfrastructureError):
    """A step was ended from outside: nothing of it may be recorded, and the run stops."""


class Interrupted(Unrecorded):
    def __init__(self) -> None:
        super().__init__("interrupted", "the same command goes on from here")
