"""What environments lack: packages that cannot be installed together, and Pythons. Nothing is written or installed."""

from __future__ import annotations

from collections.abc import Collection
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
