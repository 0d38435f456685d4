"""Operators that matrix.yaml names, looked up in the PyTorch of environments that exist. Nothing is called."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from harness.config.matrix import Matrix
from harness.config.yaml_files import line_of
from harness.errors import Problem
from harness.preflight.findings import Findings
from harness.tools import output_of

LOOKING_S = 120  # PyTorch is imported
# Prints the names that are not there, each with the nearest that are, and that a file may name.
LOOK_UP = """
import difflib, functools, json, sys, torch
found = {}
for name in sys.argv[1:]:
    module, _, last = name.rpartition(".")
    try:
        functools.reduce(getattr, name.split(".")[1:], torch)
    except AttributeError:
        try:
            home = functools.reduce(getattr, module.split(".")[1:], torch)
            known = [each for each in dir(home) if each.strip("_") == each and callable(getattr(home, each, None))]
        except AttributeError:
            known = []
        found[name] = [f"{module}.{each}" for each in difflib.get_close_matches(last, known, 3, 0.75)]
print(json.dumps(found))
"""


def check_operators(
    matrix: Matrix, text: str, path: Path, pythons: Mapping[str, Path], environments: Collection[str]
) -> Findings:
    """A name that no environment's PyTorch has is a mistake; one that some have is a result. `pythons`: of those
    environments that exist; where one of `environments` does not, nothing is certain."""
    found = Findings()
    names = list(dict.fromkeys(each.operator for each in matrix.operators if each.operator))
    if not names:
        return found
    if set(environments) - set(pythons):
        found.unchecked.append("names of operators: not every environment exists yet; one that is lacking is a row")
        return found
    printed = [output_of([str(python), "-I", "-c", LOOK_UP, *names], LOOKING_S) for python in pythons.values()]
    lacking = [json.loads(each) for each in printed if each is not None]
    if len(lacking) < len(printed):
        found.unchecked.append("names of operators: PyTorch could not be asked in every environment")
        return found
    for index, operator in enumerate(matrix.operators):
        if operator.operator and all(operator.operator in each for each in lacking):
            first, *others = (each[operator.operator] for each in lacking)
            near = next((name for name in first if all(name in each for each in others)), "")
            found.problems.append(
                Problem(
                    where=f"{path}:{line_of(text, 'operators', index, 'operator')}",
                    what=f"operators[{index}]: no PyTorch of this run has {operator.operator}",
                    remedy=f"did you mean {near}?" if near else "correct the name, or remove it",
                )
            )
    return found
