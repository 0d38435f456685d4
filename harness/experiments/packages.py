"""Which packages of two environments can be exchanged, and the environments in which they are. Pure.

PyTorch is held, and one package at a time is the other environment's: all else in the environment's pin file stays, by
hash. What a package can matter for is decided by its name:

* NVIDIA's libraries and Triton on a GPU only, without those that only mark and profile; of a kernel that calls no
  PyTorch only those that it links;
* libraries under PyTorch's own operators on the CPU (MKL, OpenMP's, TBB), for code that calls PyTorch;
* numpy, SciPy and whatever `packages:` names, for Python files, kernels with their own binding and PyTorch's operators.
  What builds and installs is none of them.

A package that one of the two lacks, and that `packages:` names for the other, is put in and taken out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.config.environments import Environment, package_versions
from harness.config.kernels import Kernel
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.packages import changed, counts
from harness.schema.records import Device

TOOLS = ("torch", "ninja", "setuptools", "pip", "wheel")
FIRST = ("numpy", "triton", "pytorch-triton", "nvidia-cudnn", "nvidia-cublas")  # the likeliest
REPLICAS = range(90, 100)  # of exchanged environments that would else have another one's id


@dataclass(frozen=True, kw_only=True)
class DifferingPackage:
    """A package that two environments differ in, and its version in each, '' where it is not there; `why` it cannot be
    exchanged, or ''."""

    name: str
    versions: tuple[str, str]
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ExchangedEnvironment:
    """An environment, the home, with one package of another; `why` it cannot be made, or ''."""

    package: str
    home: str
    level: str
    spec: Environment
    why: str = ""


def find_differing(
    base: EnvironmentRecord, this: EnvironmentRecord, kernel: Kernel, device: Device, named: Collection[str]
) -> list[DifferingPackage]:
    """Return the packages that differ and can matter for a kernel on a device, those that matrix.yaml names first."""
    found = []
    for name, versions in changed(base, this).items():
        if name not in TOOLS and can_matter(name, kernel, device, named):
            missing = "" if all(versions) or name in named else base.id if not versions[0] else this.id
            why = f"{missing} does not hold it: there is nothing to exchange" if missing else ""
            found.append(DifferingPackage(name=name, versions=versions, why=why))

    def rank(package: DifferingPackage) -> tuple[bool, bool, int, str]:
        place = next((index for index, first in enumerate(FIRST) if package.name.startswith(first)), len(FIRST))
        return bool(package.why), package.name not in named, place, package.name

    return sorted(found, key=rank)


def can_matter(package: str, kernel: Kernel, device: Device, named: Collection[str]) -> bool:
    if kernel.is_bound:  # it calls no PyTorch
        return device == "cuda" and any(f"-{library}-" in f"{package}-" for library in kernel.libraries)
    return package in named or counts(package, device)


def exchange(specs: Mapping[str, Environment], packages: Sequence[DifferingPackage]) -> list[ExchangedEnvironment]:
    """Return, for each package, either of two environments, which are given by id, with the other's."""
    (base, ours), (this, theirs) = specs.items()
    made, found = [ours, theirs], []
    for package in packages:
        for home, level, version in ((base, this, package.versions[1]), (this, base, package.versions[0])):
            if package.why:
                found.append(_refused(package, home, level, specs[home]))
                continue
            spec = with_package(specs[home], package.name, version)
            spares = (spec.model_copy(update={"replica": replica}) for replica in REPLICAS)
            spec = next(each for each in (spec, *spares) if each in made or each.id() not in {e.id() for e in made})
            made.append(spec)
            found.append(ExchangedEnvironment(package=package.name, home=home, level=level, spec=spec))
    return found


def _refused(package: DifferingPackage, home: str, level: str, spec: Environment) -> ExchangedEnvironment:
    return ExchangedEnvironment(package=package.name, home=home, level=level, spec=spec, why=package.why)


def with_package(spec: Environment, package: str, version: str) -> Environment:
    """Return the environment with that package in that version; without it, where that is ''."""
    own = package_versions(spec.packages) | {package: version}
    return spec.model_copy(update={"packages": [f"{name}=={number}" for name, number in own.items() if number]})
