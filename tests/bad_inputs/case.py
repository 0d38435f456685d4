"""One mistake of a user, and what its answer must say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from harness.errors import BAD_INPUT

MATRIX = """\
schema_version: 1
baseline: "2.1.0"
environments:
  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}
  - {torch: "2.5.0", cuda: "12.1", python: "3.11"}
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
kernels:
  - name: mine
    sources: {cpu: [mine.cpp]}
workloads:
  - name: small
    shape: {batch: 1, heads: 1, seq_len: 8, head_dim: 64}
    dtypes: {cpu: [float32]}
launches: 2
"""
# What tells a user nothing: how we are written, patterns, and the words of our libraries.
RIDDLES = (
    "Traceback",
    "pydantic",
    "validation error",
    "Input should",
    "Extra inputs",
    "value_error",
    "literal_error",
    "NoneType",
    "instance of",
    "object at 0x",
    "Errno",
    "KeyError",
    "ValueError",
    "TypeError",
    "OSError",
    "jsonschema",
    "ScannerError",
    "ParserError",
    "yaml.",
    "(?",
    "\\d",
    "[a-z",
    "[A-Z",
    "]+",
    "]*",
    "argparse",
)
LINES = 15


Files = Mapping[str, str | bytes | Callable[[str], str] | None]


class Case(NamedTuple):
    """`said`: all must stand in the answer; `a|b`: one of the two. A file of None is a folder, `-> x` a link to x, and
    of a function what that makes of its text. `locked`: a path that this user may neither read nor write."""

    name: str
    command: str
    said: tuple[str, ...]
    files: Files
    variables: Mapping[str, str]
    code: int
    locked: str | None


NOTHING: Mapping[str, str] = {}


def case(
    name: str,
    command: str,
    *said: str,
    files: Files = NOTHING,
    variables: Mapping[str, str] = NOTHING,
    code: int = BAD_INPUT,
    locked: str | None = None,
) -> Case:
    return Case(name, command, said, files, variables, code, locked)


def edited(name: str, old: str, new: str, *said: str, command: str = "matrix --list") -> Case:
    """A matrix.yaml in which `new` was typed for `old`."""
    assert MATRIX.count(old) >= 1, old
    return case(name, command, "matrix.yaml", *said, files={"matrix.yaml": MATRIX.replace(old, new, 1)})


def faults(case: Case, code: int, printed: str) -> list[str]:
    """What is wrong with an answer."""
    lines = printed.strip().splitlines()
    found = [f"exit code {code}, not {case.code}"] if code != case.code else []
    found += [f"a riddle: {word}" for word in RIDDLES if word in printed]
    found += [f"does not say {part!r}" for part in case.said if not holds(printed, part)]
    found += [f"{len(lines)} lines"] if len(lines) > LINES else []
    remedies = r"remedy: \S|help: \S|Do: |Correct that|the same command"
    return found + ([] if re.search(remedies, printed) else ["no remedy"])


def holds(printed: str, part: str) -> bool:
    plain = " ".join(printed.split()).casefold()
    return any(" ".join(one.split()).casefold() in plain for one in part.split("|"))
