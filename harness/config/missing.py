"""Files that matrix.yaml names and that are not there: each with its line, and what may have been meant."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from harness.config import shipped, wheel_files
from harness.config.environments import Environment
from harness.config.kernels import Kernel
from harness.config.matrix import Matrix
from harness.config.yaml_files import line_of
from harness.errors import InputProblem, meant


def missing_files(matrix: Matrix, text: str, matrix_path: Path, kernels: Collection[str]) -> list[InputProblem]:
    """Of these kernels, in the order of matrix.yaml. `text` is its text."""
    root, found = matrix_path.resolve().parent, list[InputProblem]()
    named: list[tuple[tuple[str, int], list[tuple[str, Sequence[int | str]]]]]
    named = [(("kernels", n), _named(kernel)) for n, kernel in enumerate(matrix.kernels) if kernel.name in kernels]
    if set(matrix.groups) & set(kernels):
        of_operators = enumerate(matrix.operators)
        named += [(("operators", n), [(each.problem, ("problem",))]) for n, each in of_operators if each.problem]
    for entry, files in named:
        for name, place in files:
            path = shipped.located(root, name)
            if os.path.isfile(path):  # which is False for what no file can be called, too
                continue
            there = path.parent.iterdir() if os.path.isdir(path.parent) else ()
            beside = [each.name for each in there if os.path.isfile(each)]
            shown = name if name.isprintable() else repr(name)
            where = f"{matrix_path}:{line_of(text, *entry, *place)}"
            remedy = f"{meant(path.name, beside, 0.75)}correct the path in matrix.yaml"
            found.append(InputProblem(where=where, what=f"{shown}: {_what(path)}", remedy=remedy))
    return found


def unfit_wheels(
    matrix: Matrix, text: str, matrix_path: Path, environments: Iterable[Environment]
) -> list[InputProblem]:
    """Of these environments' wheel files, those that are not there, or not for this machine. `text` is its text."""
    found, wanted = list[InputProblem](), list(environments)
    for number, spec in enumerate(matrix.environments):
        if spec.wheel is None or spec not in wanted:
            continue
        path, where = wheel_files.located(matrix_path.resolve().parent, spec.wheel), ("environments", number, "wheel")
        if what := wheel_files.unfit(path, spec.python):
            place = f"{matrix_path}:{line_of(text, *where)}"
            found.append(InputProblem(where=place, what=f"{spec.wheel}: {what}", remedy=wheel_files.REMEDY))
    return found


def _named(kernel: Kernel) -> list[tuple[str, Sequence[int | str]]]:
    named: list[tuple[str, Sequence[int | str]]] = []
    if kernel.sources is not None:
        for device in ("cpu", "cuda"):
            files = getattr(kernel.sources, device)
            named += [(name, ("sources", device, index)) for index, name in enumerate(files)]
    keys = ("problem", "model_new", "library", "wheel")
    return named + [(name, (key,)) for key in keys if (name := getattr(kernel, key))]


def _what(path: Path) -> str:
    if os.path.isdir(path):
        return "is a folder; a file belongs here"
    return f"a link to {os.readlink(path)}, which is no file" if os.path.islink(path) else "no such file"
