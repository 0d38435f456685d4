"""The two environments that a script is traced in: pinned ones, a bundle's, or the host's PyTorch."""

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
from harness.gpu import gpus
from harness.isolate.bundle.executor import BundleExecutor, plain_id
from harness.isolate.choose import choose_bundle
from harness.isolate.host import HostExecutor
from harness.isolate.namespaces import driver_mounts
from harness.isolate.venv import VenvExecutor
from harness.run.prepare import bundled_indexes
from harness.schema.environment_records import EnvironmentRecord
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


def prepare(
    matrix: Matrix, root: Path, script: Script, out: Path, bundle: Path | None = None
) -> tuple[list[Side], list[str]]:
    """The two sides, their environments made and proven; and what differs from what was asked for, in words.

    InfrastructureError where an environment cannot be made, InputError where it lacks what the script starts with.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    makers = Makers(matrix, root, out, bundle)
    notes = list(dict.fromkeys(f"wheels come from a fallback: {why}" for why in makers.fallbacks.values()))
    sides = list[Side]()
    pythons = dict[str, str]()
    for spec in matrix.environments:
        side, record = makers.side(spec, script)
        side.version = side.version if side.version not in pythons else f"{side.version}-again"
        pythons[side.version] = record.python
        sides.append(side)
    if len(set(pythons.values())) > 1:
        notes.append("; ".join(f"{version} runs on Python {python}" for version, python in pythons.items()))
    return sides, notes


class Makers:
    """What makes environments, by their kind."""

    def __init__(self, matrix: Matrix, root: Path, out: Path, bundle: Path | None) -> None:
        self.matrix, self.root, self.out = matrix, root, out
        self.threads = physical_cores()
        self.bundle: BundleExecutor | None = None
        if bundle is None:
            self.indexes, self.fallbacks = choose_indexes(matrix, strict=False)
            return
        choice = choose_bundle(bundle)
        assert choice.bundle is not None and choice.namespaces is not None
        self.indexes, self.fallbacks = bundled_indexes(matrix, choice.bundle, strict=False)
        self.bundle = BundleExecutor(choice.bundle, choice.namespaces, root, cache_folder(), self.threads)

    def side(self, spec: Environment, script: Script) -> tuple[Side, EnvironmentRecord]:
        """One side, and the record of its environment."""
        executor = self._executor(spec)
        environment = PlannedEnvironment(spec=spec, index=self.indexes.get(spec.id(), ""))
        pins = None if spec.is_host else ensure_pins(self.root, environment, self.matrix)[0]
        record = executor.prepare(environment, pins)
        if record.status != protocol.OK:
            raise InfrastructureError(f"{environment.id}: {record.message}", "see: nox -s doctor")
        if script.package == "pytest" and pins is not None and "pytest" not in record.pins:
            remedy = "--requirements FILE, with a line such as pytest==8.3.4"
            raise InputError("pytest: not in the environments", remedy)
        side = Side(record.torch, Path(), script, self.out, self.threads, record, pins)
        if isinstance(executor, BundleExecutor):
            self._bundled(executor, environment, side)
        else:
            side.python = executor.python(environment.id)
        if spec.is_host:
            side.variables = {"PYTHONNOUSERSITE": ""}  # its packages may be the user's own
        return side, record

    def _executor(self, spec: Environment) -> VenvExecutor | HostExecutor | BundleExecutor:
        if spec.is_host:
            return HostExecutor(cache_folder(), self.threads)
        return self.bundle or VenvExecutor(cache_folder(), self.threads)

    def _bundled(self, executor: BundleExecutor, environment: PlannedEnvironment, side: Side) -> None:
        """A bundle's Python, with the packages of one of its environments and what they load, outside of a sandbox: the
        script is the user's own."""
        side.bundle, side.python = executor.bundle.folder, executor.bundle.python
        folder = executor.bundle.environment(plain_id(environment.id))
        side.packages = next(folder.glob("lib/python3*/site-packages"))
        libraries = sorted(side.packages.glob("nvidia/*/lib"))
        if gpus():
            libraries = [link_driver(self.out / "tracer-driver"), *libraries]
        side.variables = {"BUNDLE_LIBRARIES": ":".join(map(str, libraries))}


def link_driver(folder: Path) -> Path:
    """A folder with links to this machine's driver and to nothing beside it."""
    folder.mkdir(exist_ok=True)
    for kind, source, target in driver_mounts():
        link = folder / Path(target).name
        if kind in ("ro", "link") and not link.is_symlink():
            link.symlink_to(source)
    return folder
