"""Requirements of an environment besides torch: exact pins of the user, and for the rest ranges that follow the version
of PyTorch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.worker.wheels import normalise


@dataclass(frozen=True, kw_only=True)
class OldLimit:
    """A range that the metadata of PyTorch's wheels does not state: releases before `until` need it all the same."""

    package: str
    until: Version
    allowed: str


LIMITS = (
    # `torch.from_numpy` of a build against numpy 1 raises under numpy 2.
    OldLimit(package="numpy", until=Version("2.3.0.dev0"), allowed="<2"),
    # The extension builder imports `pkg_resources.packaging`, which setuptools 70 dropped.
    OldLimit(package="setuptools", until=Version("2.2.0.dev0"), allowed="<70"),
)
NEEDED = ("numpy", "ninja", "setuptools")  # inputs are made with the first, kernels are built with the others
# One version for every environment, so that no package can be what differs. PyTorch's own requirements come first: a
# resolver keeps these versions wherever the version of PyTorch and the Python take them, and else chooses.
PREFERRED = {"numpy": "1.26.4", "ninja": "1.11.1.1", "setuptools": "69.5.1"}
PREFERRED_NUMPY = {"3.8": "1.24.4", "3.13": "2.2.6", "3.14": "2.3.5"}  # where 1.26.4 has no wheel


def usual_requirements(torch: str, pinned: Collection[str]) -> list[str]:
    """Return what an environment of this version of PyTorch needs besides the packages that are `pinned`."""
    ranges = {limit.package: limit.allowed for limit in LIMITS if Version(torch) < limit.until}
    return [f"{name}{ranges.get(name, '')}" for name in NEEDED if name not in pinned]


def preferred_pins(python: str) -> str:
    """Return the lines that a resolver keeps for this Python wherever it may."""
    versions = PREFERRED | {"numpy": PREFERRED_NUMPY.get(python, PREFERRED["numpy"])}
    return "".join(f"{name}=={version}\n" for name, version in versions.items())


def unmet_requirement(requirements: Collection[str], pins: Mapping[str, str]) -> str:
    """Return the first requirement that these pins (package to version) do not meet, or ''."""
    for text in requirements:
        requirement = Requirement(text)
        try:
            version = Version(pins[normalise(requirement.name)])
        except (KeyError, InvalidVersion):
            return text
        if not requirement.specifier.contains(version, prereleases=True):
            return text
    return ""


def exceeded_limits(torch: str, pinned: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the user's pins that leave a range that this version of PyTorch needs, each with the range."""
    return [
        (f"{limit.package}=={pinned[limit.package]}", f"{limit.package}{limit.allowed}")
        for limit in LIMITS
        if limit.package in pinned
        and Version(torch) < limit.until
        and not SpecifierSet(limit.allowed).contains(pinned[limit.package], prereleases=True)
    ]
