"""Which packages of two environments can be exchanged, and the environments in which they are. Pure.

PyTorch is held, and one package at a time is the other environment's: all else in the environment's pin file stays, by
hash. What a package can matter for is told by its name:

* NVIDIA's libraries and Triton on a GPU alone, without those that only mark and profile; of a kernel that calls no
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
MOST_PACKAGES = 6  # of two environments: each is two environments more
REPLICAS = range(90, 100)  # of exchanged environments that would else have another one's id


@dataclass(frozen=True, kw_only=True)
class Component:
    """A package that two environments differ in, and its version in each, '' where it is not there; `why` it cannot be
    exchanged, or ''."""

    package: str
    versions: tuple[str, str]
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """An environment with one package of another: which PyTorch it has, and whose package."""

    component: Component
    torch_of: str
    package_of: str
    spec: Environment


def differing(
    base: EnvironmentRecord, this: EnvironmentRecord, kernel: Kernel, device: Device, named: Collection[str]
) -> list[Component]:
    """The packages that differ and can matter for a kernel on a device, those that matrix.yaml names first."""
    found = []
    for name, versions in changed(base, this).items():
        if name not in TOOLS and can_matter(name, kernel, device, named):
            missing = "" if all(versions) or name in named else base.id if not versions[0] else this.id
            why = f"{missing} does not hold it: there is nothing to exchange" if missing else ""
            found.append(Component(package=name, versions=versions, why=why))

    def rank(component: Component) -> tuple[bool, bool, int, str]:
        name = component.package
        place = next((index for index, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))
        return bool(component.why), name not in named, place, name

    return sorted(found, key=rank)


def can_matter(package: str, kernel: Kernel, device: Device, named: Collection[str]) -> bool:
    if kernel.is_bound:  # it calls no PyTorch
        return device == "cuda" and any(f"-{library}-" in f"{package}-" for library in kernel.libraries)
    return package in named or counts(package, device)


def exchanges(specs: Mapping[str, Environment], components: Sequence[Component]) -> list[Exchanged]:
    """Both ways for each component that can be exchanged between two environments, which are given by id."""
    ids, made = tuple(specs), list(specs.values())
    found = []
    for component in components:
        for ours, theirs in ((0, 1), (1, 0)) if not component.why else ():
            spec = with_package(specs[ids[ours]], component.package, component.versions[theirs])
            spares = (spec.model_copy(update={"replica": replica}) for replica in REPLICAS)
            spec = next(each for each in (spec, *spares) if each in made or each.id() not in {e.id() for e in made})
            made.append(spec)
            found.append(Exchanged(component=component, torch_of=ids[ours], package_of=ids[theirs], spec=spec))
    return found


def with_package(spec: Environment, package: str, version: str) -> Environment:
    """The environment with that package in that version; without it, where that is ''."""
    own = package_versions(spec.packages) | {package: version}
    return spec.model_copy(update={"packages": [f"{name}=={number}" for name, number in own.items() if number]})
