"""The two environments that a script is traced in: pinned ones, or the host's PyTorch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.config.environments import HOST, Environment, Package, package_versions
from harness.config.indexes import choose_indexes
from harness.config.matrix import ENVIRONMENTS, Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, InputError
from harness.executors.host import HostExecutor
from harness.executors.venv import VenvExecutor
from harness.search.bisect.subject import environment_of
from harness.tools import cache_folder, physical_cores
from harness.trace.runs import Script, Side
from harness.worker import protocol

OLDEST = (2, 1)  # the recorder needs what PyTorch 2.1 has
PIN = TypeAdapter(Package)


def load_requirements(path: Path) -> list[str]:
    """Return the exact pins of a file, but for torch's: both versions must have the same of everything. InputError
    where the file cannot be read, or a line is no exact pin."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "name the file of the script's packages") from None
    pins = []
    for number, line in enumerate(lines, 1):
        pin = line.partition("#")[0].strip()
        try:
            if pin and "torch" not in package_versions([PIN.validate_python(pin)]):
                pins.append(pin)
        except ValidationError:
            raise InputError(f"{path}:{number}: {pin!r} is no exact version", "write it as NAME==VERSION") from None
    return pins


def make_matrix(path: Path, versions: Sequence[str], requirements: Sequence[str]) -> Matrix:
    """Return a matrix of the two environments: those of matrix.yaml where it has these versions, else the usual
    ones."""
    for version in versions:
        numbers = version.partition(".dev")[0].split(".")
        if version != HOST and tuple(int(number) for number in numbers[:2] if number.isdecimal()) < OLDEST:
            raise InputError(f"PyTorch {version}: the recorder needs 2.1 or newer", "choose a later version")
    matrix = load_matrix(path)[0] if path.exists() else Matrix.model_construct(baseline=ENVIRONMENTS[0].id())
    good, bad = (_find_environment(matrix, version, versions[0]) for version in versions)
    if good == bad:
        bad = bad.model_copy(update={"replica": 1})
    required = package_versions(requirements)
    packages = [pin for pin in matrix.packages if required.keys().isdisjoint(package_versions([pin]))]
    changes = {"environments": [good, bad], "packages": [*packages, *requirements], "kernels": [], "operators": []}
    return matrix.model_copy(update={**changes, "baseline": good.id()})


def _find_environment(matrix: Matrix, version: str, good: str) -> Environment:
    """Return the environment of a version: the good one's, with the packages that matrix.yaml gives this version."""
    if version == HOST:
        return Environment(torch=HOST)
    environment = environment_of(matrix, version, good)
    own = next((spec for spec in matrix.pinned_environments if spec.torch == version and spec.packages), None)
    if own is None or version == good:
        return environment
    return environment.model_copy(update={"packages": own.packages})


def prepare(matrix: Matrix, root: Path, script: Script, out: Path) -> tuple[list[Side], list[str]]:
    """Return the two sides, their environments made and proven; and notes on what differs from what was asked for.

    InfrastructureError where an environment cannot be made, InputError where it lacks what the script starts with.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    indexes, fallbacks = choose_indexes(matrix, strict=False)
    notes = list(dict.fromkeys(f"wheels come from a fallback: {reason}" for reason in fallbacks.values()))
    sides, pythons = list[Side](), dict[str, str]()
    for spec in matrix.environments:
        environment = PlannedEnvironment(spec=spec, index=indexes.get(spec.id(), ""))
        side, python = _prepare_side(environment, matrix, root, script, out)
        if sides and side.version == sides[0].version:
            side.version = f"{side.version}-again"
        sides.append(side)
        pythons[side.version] = python
    if len(set(pythons.values())) > 1:
        notes.append("; ".join(f"{version} runs on Python {python}" for version, python in pythons.items()))
    return sides, notes


def _prepare_side(
    environment: PlannedEnvironment, matrix: Matrix, root: Path, script: Script, out: Path
) -> tuple[Side, str]:
    """Return a side, and its Python's version."""
    is_host, threads = environment.spec.is_host, physical_cores()
    executor = HostExecutor(cache_folder(), threads) if is_host else VenvExecutor(cache_folder(), threads)
    pins = None if is_host else ensure_pins(root, environment, matrix)[0]
    record = executor.prepare(environment, pins)
    if record.status != protocol.OK:
        raise InfrastructureError(f"{environment.id}: {record.message}", "see: nox -s doctor")
    if script.kind == "module" and script.target == "pytest" and pins is not None and "pytest" not in record.pins:
        remedy = "--requirements FILE, with a line such as pytest==8.3.4"
        raise InputError("pytest: not in the environments", remedy)
    side = Side(record.torch, executor.python(environment.id), script, out, threads)
    if is_host:
        side.variables = {"PYTHONNOUSERSITE": ""}  # its packages may be the user's own
    return side, record.python
