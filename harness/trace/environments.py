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
from harness.isolate.host import HostExecutor
from harness.isolate.venv import VenvExecutor
from harness.search.bisect.subject import environment_of
from harness.tools import cache_folder, physical_cores
from harness.trace.runs import Script, Side
from harness.worker import protocol

OLDEST = (2, 1)  # the recorder needs what PyTorch 2.1 has
PIN = TypeAdapter(Package)


def load_requirements(path: Path) -> list[str]:
    """As `parse_requirements`; InputError where the file cannot be read, too."""
    try:
        return parse_requirements(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "name the file of the script's packages") from None


def parse_requirements(text: str, path: str) -> list[str]:
    """Exact pins. InputError where a line is none: both versions must have the same of everything."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            PIN.validate_python(line)
        except ValidationError:
            raise InputError(f"{path}:{number}: {line!r} is no exact version", "write it as NAME==VERSION") from None
        if "torch" not in package_versions([line]):
            found.append(line)
    return found


def make_matrix(path: Path, versions: Sequence[str], requirements: Sequence[str]) -> Matrix:
    """The environments: those of matrix.yaml where it has these versions, else the usual ones."""
    for version in versions:
        numbers = version.partition(".dev")[0].split(".")
        if version != HOST and tuple(int(each) for each in numbers[:2] if each.isdecimal()) < OLDEST:
            raise InputError(f"PyTorch {version}: the recorder needs 2.1 or newer", "choose a later version")
    matrix = load_matrix(path)[0] if path.exists() else Matrix.model_construct(baseline=ENVIRONMENTS[0].id())
    environments: list[Environment] = [
        Environment(torch=HOST) if version == HOST else _environment(matrix, version, versions[0])
        for version in versions
    ]
    if environments[0] == environments[1]:
        environments[1] = environments[1].model_copy(update={"replica": 1})
    given = package_versions(requirements)
    kept = [each for each in matrix.packages if given.keys().isdisjoint(package_versions([each]))]
    made = {"environments": environments, "packages": [*kept, *requirements], "kernels": [], "operators": []}
    return matrix.model_copy(update={**made, "baseline": environments[0].id()})


def _environment(matrix: Matrix, version: str, good: str) -> Environment:
    """Return the environment of a version: the good one's, with the packages that matrix.yaml gives this version."""
    found = environment_of(matrix, version, good)
    own = next((spec for spec in matrix.pinned_environments if spec.torch == version and spec.packages), None)
    return found if own is None or version == good else found.model_copy(update={"packages": own.packages})


def prepare(matrix: Matrix, root: Path, script: Script, out: Path) -> tuple[list[Side], list[str]]:
    """Return the two sides, their environments made and proven; and notes on what differs from what was asked for.

    InfrastructureError where an environment cannot be made, InputError where it lacks what the script starts with.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    indexes, fallbacks = choose_indexes(matrix, strict=False)
    notes = list(dict.fromkeys(f"wheels come from a fallback: {why}" for why in fallbacks.values()))
    sides = list[Side]()
    for spec in matrix.environments:
        environment = PlannedEnvironment(spec=spec, index=indexes.get(spec.id(), ""))
        side = _prepare_side(environment, matrix, root, script, out)
        if sides and side.version == sides[0].version:
            side.version = f"{side.version}-again"
        sides.append(side)
    if len({side.environment.python for side in sides}) > 1:
        notes.append("; ".join(f"{side.version} runs on Python {side.environment.python}" for side in sides))
    return sides, notes


def _prepare_side(environment: PlannedEnvironment, matrix: Matrix, root: Path, script: Script, out: Path) -> Side:
    threads = physical_cores()
    is_host = environment.spec.is_host
    executor = HostExecutor(cache_folder(), threads) if is_host else VenvExecutor(cache_folder(), threads)
    pins = None if is_host else ensure_pins(root, environment, matrix)[0]
    record = executor.prepare(environment, pins)
    if record.status != protocol.OK:
        raise InfrastructureError(f"{environment.id}: {record.message}", "see: nox -s doctor")
    if script.package == "pytest" and pins is not None and "pytest" not in record.pins:
        remedy = "--requirements FILE, with a line such as pytest==8.3.4"
        raise InputError("pytest: not in the environments", remedy)
    side = Side(record.torch, executor.python(environment.id), script, out, threads, record)
    if is_host:
        side.variables = {"PYTHONNOUSERSITE": ""}  # its packages may be the user's own
    return side
