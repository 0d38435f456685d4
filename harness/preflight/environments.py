"""What of matrix.yaml environments lack: packages that cannot be installed together, Pythons, operators that no PyTorch
has. Nothing is written, installed or called."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from harness.config.environments import Environment, package_versions
from harness.config.indexes import choose_indexes
from harness.config.interpreters import find_interpreter
from harness.config.matrix import Matrix
from harness.config.pins import resolve_as_planned, usable_pins
from harness.config.plan import PlannedEnvironment
from harness.config.requirements import exceeded_limits
from harness.config.yaml_files import line_of
from harness.errors import InfrastructureError, InputError, InputProblem
from harness.preflight import Findings
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


def check_packages(matrix: Matrix, text: str, path: Path, environments: Collection[Environment]) -> Findings:
    """Find those of these environments whose packages cannot be installed together. `text`: of the matrix.yaml at
    `path`."""
    found = Findings()
    for number, spec in enumerate(matrix.environments):
        if spec.is_host or spec not in environments:
            continue
        place = f"{path}:{line_of(text, 'environments', number)}"
        try:
            environment = _planned(matrix, spec)
            pins = usable_pins(path.resolve().parent, environment, matrix)
            if pins is None:
                resolve_as_planned(path.resolve().parent, environment, matrix)
        except InputError as error:
            found.problems.append(InputProblem(where=place, what=error.message, remedy=error.remedy))
            continue
        except InfrastructureError as error:
            found.unchecked.append(f"packages: {error.message}")
            continue
        found.passed.append(f"packages of {environment.id}: {'pinned' if pins else 'they can be resolved'}")
        found.unchecked += _outside_limits(matrix, environment)
    return found


def check_interpreters(environments: Collection[Environment]) -> Findings:
    """Find the Pythons that virtual environments need and this machine lacks: uv may be able to fetch them."""
    found = Findings()
    for python in sorted({each.python for each in environments if not each.is_host}):
        if find_interpreter(python) is None:
            found.unchecked.append(f"Python {python}: not on this machine; a run can only start if uv can fetch it")
    return found


def _planned(matrix: Matrix, spec: Environment) -> PlannedEnvironment:
    """Return the environment with the index that a run takes. InfrastructureError where none answers."""
    indexes, _ = choose_indexes(matrix.model_copy(update={"environments": [spec]}), strict=False)
    return PlannedEnvironment(spec=spec, index=indexes[spec.id()])


def _outside_limits(matrix: Matrix, environment: PlannedEnvironment) -> list[str]:
    """Return, in words, the pins that PyTorch's metadata permits and its code cannot work with."""
    spec = environment.spec
    pinned = package_versions(matrix.packages_in(spec))
    ranges = exceeded_limits(spec.torch, pinned)
    return [
        f"packages of {environment.id}: {pin} is pinned, and PyTorch {spec.torch} works only with {needed}: a failure "
        "there for this reason says nothing about PyTorch"
        for pin, needed in ranges
    ]


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
                InputProblem(
                    where=f"{path}:{line_of(text, 'operators', index, 'operator')}",
                    what=f"operators[{index}]: no PyTorch of this run has {operator.operator}",
                    remedy=f"did you mean {near}?" if near else "correct the name, or remove it",
                )
            )
    return found
