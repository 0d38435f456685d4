"""Files that matrix.yaml names and that are not there: each with its line, and what may have been meant."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from harness.config import shipped, wheel_files
from harness.config.environments import Environment
from harness.config.matrix import Matrix
from harness.config.yaml_files import line_of
from harness.errors import InputProblem, meant

FILES = ("problem", "model_new", "library", "wheel")  # keys of a kernel that name one file
Place = tuple[int | str, ...]


def missing_files(matrix: Matrix, text: str, matrix_path: Path, kernels: Collection[str]) -> list[InputProblem]:
    """Find those of these kernels, in the order of matrix.yaml. `text` is its text."""
    found = list[InputProblem]()
    for place, name in _list_named(matrix, kernels):
        path = shipped.located(matrix_path.resolve().parent, name)
        if os.path.isfile(path):  # which is False for what no file can be called, too
            continue
        beside = os.listdir(path.parent) if os.path.isdir(path.parent) else ()
        shown = name if name.isprintable() else repr(name)
        what = "is a folder; a file belongs here" if os.path.isdir(path) else "no such file"
        if os.path.islink(path):
            what = f"a link to {os.readlink(path)}, which is no file"
        found.append(
            InputProblem(
                where=f"{matrix_path}:{line_of(text, *place)}",
                what=f"{shown}: {what}",
                remedy=f"{meant(path.name, beside, 0.75)}correct the path in matrix.yaml",
            )
        )
    return found


def _list_named(matrix: Matrix, kernels: Collection[str]) -> Iterator[tuple[Place, str]]:
    """Yield the files that these kernels name, and where in matrix.yaml."""
    for number, kernel in enumerate(matrix.kernels):
        if kernel.name not in kernels:
            continue
        for device, files in (kernel.sources.model_dump() if kernel.sources else {}).items():
            yield from ((("kernels", number, "sources", device, index), name) for index, name in enumerate(files))
        for key in FILES:
            if name := getattr(kernel, key):
                yield ("kernels", number, key), name
    for number, operator in enumerate(matrix.operators):
        if operator.problem and set(matrix.groups) & set(kernels):
            yield ("operators", number, "problem"), operator.problem


def unfit_wheels(
    matrix: Matrix, text: str, matrix_path: Path, environments: Iterable[Environment]
) -> list[InputProblem]:
    """Find those of these environments' wheel files that are not there, or not for this machine. `text` is that of
    matrix.yaml."""
    found, wanted = list[InputProblem](), list(environments)
    for number, spec in enumerate(matrix.environments):
        if spec.wheel is None or spec not in wanted:
            continue
        path = wheel_files.located(matrix_path.resolve().parent, spec.wheel)
        if what := wheel_files.unfit(path, spec.python):
            place = f"{matrix_path}:{line_of(text, 'environments', number, 'wheel')}"
            found.append(InputProblem(where=place, what=f"{spec.wheel}: {what}", remedy=wheel_files.REMEDY))
    return found
