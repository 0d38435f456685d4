"""`kernel-matrix init`: write a matrix.yaml, a noxfile.py and a reports/.gitignore for the kernels in a folder. It asks
nothing and overwrites nothing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.cli.options import Command, Parser
from harness.config.matrix import parse_matrix
from harness.errors import DONE, InputError

MOST_FILES, MOST_BYTES = 20_000, 1 << 20  # looked at; and of one file
DEVICES = {".cpp": "cpu", ".cc": "cpu", ".cxx": "cpu", ".cu": "cuda"}
SKIPPED = {"build", "dist", "node_modules", "reports", "third_party", "venv"}
ENTRY_POINT = re.compile(r"\battention_forward\s*\(")
OWN_BINDING = re.compile(r'\bPYBIND11_MODULE\b[\s\S]*?\.def\(\s*"forward"')
PROBLEM, SOLUTION = re.compile(r"^class Model\b", re.MULTILINE), re.compile(r"^class ModelNew\b", re.MULTILINE)
INPUTS = re.compile(r"^def get_inputs\b", re.MULTILINE)

HEAD = """\
# What `kernel-matrix matrix` compares. By default: PyTorch 2.1.0 and 2.5.0 for CUDA 12.1 (key `environments`).
kernels:
"""
WORKLOADS = """\
# What attention kernels are tested on: a length that tiles divide, and one that none does.
workloads:
  - name: seed
    shape: {batch: 1, heads: 8, seq_len: 512, head_dim: 64}
    dtypes: {cpu: [float32], cuda: [float16, float32]}
  - name: tail
    shape: {batch: 1, heads: 8, seq_len: 511, head_dim: 64}
    dtypes: {cpu: [float32], cuda: [float16, float32]}
"""
EXAMPLE = "kernels: [{name: mine, sources: {cpu: [mine/attention.cpp]}}]"
IGNORE = "reports/.gitignore"
# Beside the pages, so that a .gitignore of the project's own is left as it is.
LEFT = ("runs/", "bisections/", "sweeps/", "traces/", "shards/", "compared/", "latest")
IGNORED = "\n".join(["# What runs leave here: arrays, logs and pages.", *(f"/{name}" for name in LEFT), ""])
NOXFILE = '''\
"""`nox -s matrix -- --quick`, `nox -s "eval(torch='2.5.0')"`: sessions that start the `kernel-matrix` on the PATH."""

import difflib
import sys
from pathlib import Path

import nox

VERSIONS = ["2.1.0", "2.5.0"]
nox.options.default_venv_backend = "none"
nox.options.sessions = ["matrix"]


def kernel_matrix(session: nox.Session, *words: str) -> None:
    variables = {"KERNEL_MATRIX_BY_NOX": "1"}  # commands on pages and in messages are then sessions of nox
    session.run("kernel-matrix", *words, *session.posargs, external=True, env=variables)


def add_session(verb: str) -> None:
    @nox.session(name=verb)
    def run(session: nox.Session) -> None:
        kernel_matrix(session, verb)


for verb in (
    "check", "matrix", "collect", "report", "compare", "export", "explain", "bisect", "sweep", "trace", "gate",
    "kernelbench", "images", "bundle", "pins", "doctor",
):
    add_session(verb)


@nox.session(name="eval")
@nox.parametrize("torch", VERSIONS)
def evaluate(session: nox.Session, torch: str) -> None:
    kernel_matrix(session, "eval", f"--torch={torch}")


def refuse_unknown(versions: list[str]) -> None:
    """Of a session that is misspelt, or given without its quotes, nox says only that there is none."""
    from nox import registry

    known = [*registry.get(), *(f"eval(torch='{version}')" for version in versions)]
    for option, name in zip(sys.argv, sys.argv[1:], strict=False):
        if option in ("-s", "--session", "--sessions") and name.replace('"', "'") not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f'did you mean nox -s "{near[0]}"? ' if near else ""
            sys.exit(f"error: {name}: no such session\\n  remedy: {meant}nox -l lists them")


if "nox" in (Path(sys.argv[0]).name, Path(sys.argv[0]).parent.name):  # not where a test reads this file
    refuse_unknown(VERSIONS)
'''


@dataclass
class FoundKernel:
    """A kernel: sources by device, or a problem and its solution. Paths are relative to the folder."""

    name: str
    sources: dict[str, str] = field(default_factory=dict)
    own: bool = False  # it has a binding of its own
    problem: str = ""
    model_new: str = ""

    @property
    def files(self) -> list[str]:
        return [name for name in (*self.sources.values(), self.problem, self.model_new) if name]

    @property
    def entry(self) -> dict[str, Any]:
        """Return what matrix.yaml says of it."""
        if self.problem:
            return {"name": self.name, "problem": self.problem, "model_new": self.model_new}
        sources = {device: [name] for device, name in sorted(self.sources.items())}
        return {"name": self.name, "sources": sources} | ({"binding": "own"} if self.own else {})


def render_matrix(kernels: list[FoundKernel]) -> str:
    """Return a matrix.yaml of these kernels. InputError where it is none."""
    style: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "allow_unicode": True, "width": 1 << 20}
    text = HEAD + "".join(f"  - {yaml.safe_dump(each.entry, **style)}" for each in kernels)
    text += WORKLOADS if any(kernel.sources for kernel in kernels) else ""
    parse_matrix(text)
    return text


def write_missing(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Write those of the files that are not there; return which, in lines."""
    lines = []
    for name, text in texts.items():
        path = folder / name
        if not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            lines.append(f"wrote {name}")
    return lines


def kernel_name(text: str) -> str:
    """Return a text as a kernel may be called."""
    return re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")[:60] or "kernel"


def init(folder: Path) -> list[str]:
    """Write the files that are not there; return what was found and written, in lines.

    InputError where matrix.yaml is there already, or nothing is found that could be a kernel.
    """
    matrix = folder / "matrix.yaml"
    if os.path.lexists(matrix):
        raise InputError(f"{matrix}: is there already; nothing was changed", "edit it, or start elsewhere")
    kernels = find_kernels(folder)
    if not kernels:
        raise InputError(
            f"{folder}: no .cu or .cpp file with attention_forward or a pybind11 forward(), and no pair of Model and "
            "ModelNew",
            f"name yours in a matrix.yaml, such as: {EXAMPLE}; of a KernelBench pair give problem and model_new",
        )
    lines = [f"found {kernel.name}: {', '.join(kernel.files)}" for kernel in kernels]
    lines += write_missing(folder, {"matrix.yaml": render_matrix(kernels), "noxfile.py": NOXFILE, IGNORE: IGNORED})
    return [*lines, "next: kernel-matrix matrix --quick"]


def find_kernels(folder: Path) -> list[FoundKernel]:
    """Find the kernels below a folder: sources with the C entry point or a pybind11 `forward`, and KernelBench's
    pairs."""
    kernels: dict[tuple[str, str], FoundKernel] = {}
    problems, solutions = list[Path](), list[Path]()
    for path, text in _read_texts(folder):
        name = str(path.relative_to(folder))
        if path.suffix == ".py":
            if SOLUTION.search(text):
                solutions.append(path)
            elif PROBLEM.search(text) and INPUTS.search(text):
                problems.append(path)
        elif (own := bool(OWN_BINDING.search(text))) or ENTRY_POINT.search(text):
            device, stem = DEVICES[path.suffix], re.sub(r"_(cpu|cuda|gpu)$", "", path.stem)
            found = kernels.setdefault((str(path.parent), stem), FoundKernel(name=stem, own=own))
            if device in found.sources or found.own != own:
                found = kernels.setdefault((str(path.parent), path.name), FoundKernel(name=path.stem, own=own))
            found.sources[device] = name
    every = [*kernels.values(), *_pairs(folder, problems, solutions)]
    taken = set[str]()
    for kernel in every:
        name = kernel_name(kernel.name)
        free = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        kernel.name = next(each for each in free if each not in taken)
        taken.add(kernel.name)
    return every


def _pairs(folder: Path, problems: list[Path], solutions: list[Path]) -> Iterator[FoundKernel]:
    """Yield pairs. A solution's problem begins its name (`softmax.py`, `softmax_new.py`), or is the only one beside
    it."""
    for solution in solutions:
        near = [path for path in problems if solution.stem.startswith(path.stem)]
        near = near or [path for path in problems if path.parent == solution.parent]
        if len(near) == 1 or (near and near[0].stem == solution.stem):
            yield FoundKernel(
                name=solution.stem,
                problem=str(near[0].relative_to(folder)),
                model_new=str(solution.relative_to(folder)),
            )


def _read_texts(folder: Path) -> Iterator[tuple[Path, str]]:
    looked = 0
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in SKIPPED and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            path = here / name
            if path.suffix in (*DEVICES, ".py") and _is_readable(path):
                looked += 1
                if looked > MOST_FILES:
                    return
                yield path, path.read_text(encoding="utf-8", errors="replace")


def _is_readable(path: Path) -> bool:
    """Return whether it is a file of usual size whose name can be written into matrix.yaml."""
    named = str(path).isprintable()
    return named and path.is_file() and os.access(path, os.R_OK) and path.stat().st_size <= MOST_BYTES


def add_options(parser: Parser) -> None:
    """Add none: it works in the current folder."""


def run(options: argparse.Namespace) -> int:
    print("\n".join(init(Path.cwd())))
    return DONE


COMMANDS = {"init": Command(add_options, run)}
