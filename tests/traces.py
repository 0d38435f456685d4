"""Small programs of known cause: what a trace of each must say, and whether it did."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from harness.cli import main
from harness.errors import DONE, UNDECIDED
from harness.trace.model import SUMMARY, TraceSummary, load_summary
from reports.render.trace_page import describe

ROOT = Path(__file__).parent.parent
VERSIONS = ("2.1.0", "2.5.0")
PYTEST = "pytest==8.3.4"
ON_GPU = 'import torch; torch.set_default_device("cuda")'


@dataclass(frozen=True)
class Program:
    """A program, and the answer that is right; the data files say what each field means."""

    verdict: str
    source: str
    named: tuple[tuple[str, str], ...] = ()
    own: tuple[str, ...] = ()
    or_else: str = ""
    answer: str = ""
    blind: bool = False
    gpu: bool = False
    command: tuple[str, ...] = ()


def load_programs() -> dict[str, Program]:
    programs: dict[str, Program] = {}
    for path in sorted((ROOT / "tests" / "programs").glob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        programs |= TypeAdapter(dict[str, Program]).validate_python(content)
    return programs


@contextlib.contextmanager
def work_in(folder: Path) -> Iterator[None]:
    """Work in a folder, on one thread."""
    before, variables = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(variables)


def trace(
    name: str, folder: Path, *options: str, versions: tuple[str, str] = VERSIONS, on_gpu: bool = False
) -> tuple[int, TraceSummary | None]:
    """Trace a program with a page in `folder`/out; return the exit code, and summary.json, None where there is
    none."""
    program = load_programs()[name]
    command = program.command or ("python", f"{name}.py")
    folder.mkdir(parents=True, exist_ok=True)
    first, _, rest = program.source.partition("\n")
    (folder / f"{name}.py").write_text(f"{first}; {ON_GPU}\n{rest}" if on_gpu else program.source, encoding="utf-8")
    words = [f"--good={versions[0]}", f"--bad={versions[1]}", f"--matrix={ROOT / 'matrix.yaml'}", "--out=out", *options]
    if command[0] == "pytest":
        (folder / "pins.txt").write_text(f"{PYTEST}\n", encoding="utf-8")
        words.append("--requirements=pins.txt")
    with work_in(folder):
        code = main.main(["trace", *words, "--", *command])
    is_answered = (folder / "out" / SUMMARY).exists()
    return code, load_summary(folder / "out") if is_answered else None


def find_mistakes(case: Program, code: int, found: TraceSummary | None, on_gpu: bool = False) -> list[str]:
    """Return what is wrong with an answer. On a GPU it is not known which of PyTorch's own operators changed."""
    if found is None:
        return [f"no answer: exit code {code}"]
    verdict, mistakes = found.verdict, list[str]()
    if verdict.value not in (case.verdict, case.or_else):
        mistakes.append(f"{verdict.value} in place of {case.verdict}")
    if code != (UNDECIDED if verdict.is_inconclusive else DONE):
        mistakes.append(f"exit code {code}")
    headline = describe(found)[0][1]
    if case.answer not in headline:
        mistakes.append(f"the headline is {headline!r}")
    needed = []
    for cause in found.causes:
        if cause.is_needed:
            sources = [cause.source, *(text for _, text in cause.others)]
            needed.append((f"{cause.kind.good} {cause.kind.bad}", sources))
    for operator, line in case.named:
        if not any(operator in names and line in source for names, sources in needed for source in sources):
            mistakes.append(f"{operator} at {line!r} is not named")
    known = [*(operator for operator, _ in case.named), *case.own]
    lines = [line for _, line in case.named]
    for names, sources in [] if on_gpu else needed:  # the backward of a line that must be named is that line
        if not any(name in names for name in known) and not any(line in sources[0] for line in lines):
            mistakes.append(f"{names} is blamed")
    return mistakes


def check(name: str, folder: Path, versions: tuple[str, str] = VERSIONS, on_gpu: bool = False) -> tuple[str, list[str]]:
    """Trace a program with a log in `folder`; return the verdict, and what is wrong with the answer."""
    with (folder / f"{name}.log").open("w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            code, found = trace(name, folder / name, versions=versions, on_gpu=on_gpu)
        except Exception as error:  # a mistake of ours is no reason to leave the others out
            return "crash", [repr(error)]
    return found.verdict.value if found else "", find_mistakes(load_programs()[name], code, found, on_gpu)
