"""Small programs of known cause: what a trace of each must say, and whether it did."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from harness.cli import main
from harness.errors import DONE, UNDECIDED
from harness.trace import outcome as o

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "programs"
PYTEST = "pytest==8.3.4"


@dataclass(frozen=True)
class Expected:
    """The answer that is right; index.yaml says what each field means."""

    verdict: str
    named: tuple[tuple[str, str], ...] = ()
    own: tuple[str, ...] = ()
    or_else: str = ""
    answer: str = ""
    blind: bool = False
    gpu: bool = False
    command: tuple[str, ...] = ()


def load_index() -> dict[str, Expected]:
    found = yaml.safe_load((FOLDER / "index.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, Expected]).validate_python(found)


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    """In the programs' folder, on one thread."""
    before, threads = Path.cwd(), os.environ.get("OMP_NUM_THREADS")
    os.chdir(FOLDER)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.chdir(before)
        del os.environ["OMP_NUM_THREADS"]
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads


def traced(
    name: str, out: Path, *options: str, versions: tuple[str, str] = ("2.1.0", "2.5.0"), on_gpu: bool = False
) -> tuple[int, dict[str, Any]]:
    """The exit code, and summary.json; empty where there is none."""
    command = load_index()[name].command or ("python", f"{name}.py")
    if on_gpu:
        command = ("python", "on_gpu.py", f"{name}.py")
    matrix, (good, bad) = ROOT / "matrix.yaml", versions
    words = ["trace", f"--good={good}", f"--bad={bad}", f"--matrix={matrix}", f"--out={out}", *options]
    if command[0] == "pytest":
        pins = out.parent / f"{out.name}.txt"
        pins.write_text(f"{PYTEST}\n", encoding="utf-8")
        words.append(f"--requirements={pins}")
    with _inside():
        code = main.main([*words, "--", *command])
    summary = out / o.SUMMARY
    return code, json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else {}


def _texts(cause: Mapping[str, Any]) -> list[str]:
    return [cause["source"], *(text for _, text in cause["others"])]


def mistakes(case: Expected, code: int, found: Mapping[str, Any], on_gpu: bool = False) -> list[str]:
    """What is wrong with an answer, in words. On a GPU it is not known which of PyTorch's own operators moved."""
    if not found:
        return [f"no answer: exit code {code}"]
    verdict, wrong = found["verdict"], list[str]()
    if verdict not in (case.verdict, case.or_else):
        wrong.append(f"{verdict} in place of {case.verdict}")
    undecided = verdict in (o.DOES_NOT_REPEAT, o.NOT_EXPLAINED, o.NOT_PROVEN)
    if code != (UNDECIDED if undecided else DONE):
        wrong.append(f"exit code {code}")
    if case.answer not in found["answer"]:
        wrong.append(f"the headline is {found['answer']!r}")
    needed = [cause for cause in found["causes"] if cause["needed"]]
    for operator, line in case.named:
        if not any(operator in each["kind"] and line in text for each in needed for text in _texts(each)):
            wrong.append(f"{operator} at {line!r} is not named")
    known, lines = (*(operator for operator, _ in case.named), *case.own), [line for _, line in case.named]
    for each in [] if on_gpu else needed:  # the backward of a line that must be named is that line
        if not any(name in each["kind"] for name in known) and not any(line in each["source"] for line in lines):
            wrong.append(f"{each['kind']} is blamed")
    if verdict == o.PROVEN and not (found["comes_back"] and found["reverse"] and found["grade"] == o.DECISIVE):
        wrong.append("it is not decisive")
    return wrong


def checked(name: str, out: Path, versions: tuple[str, str], on_gpu: bool) -> tuple[str, list[str]]:
    """Trace a program with a page and a log in `out`: the verdict, and what is wrong with the answer."""
    with (out / f"{name}.log").open("w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            code, found = traced(name, out / name, versions=versions, on_gpu=on_gpu)
        except Exception as error:  # a mistake of ours is no reason to leave the others out
            return "crash", [repr(error)]
    return found.get("verdict", ""), mistakes(load_index()[name], code, found, on_gpu)
