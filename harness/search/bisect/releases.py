"""The releases that a package index has between two, and why some of them cannot be installed here."""

from __future__ import annotations

from collections.abc import Iterable

from packaging import tags
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from harness.config.environments import PYPI, Environment
from harness.config.listing import Listed
from harness.errors import InputError
from harness.schema.bisection_records import Release


def parse_version(text: str, option: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise InputError(f"{option} {text}: not a version", "give a release, such as 2.5.0") from None


def in_order(good: str, bad: str) -> tuple[Version, Version]:
    """InputError where these are no two releases, the earlier first: nobody needs to be asked to see that."""
    first, last = parse_version(good, "--good"), parse_version(bad, "--bad")
    if first >= last:
        remedy = "exchange them" if first > last else "give two releases"
        raise InputError(f"--good {good} --bad {bad}: the good one must be the earlier", remedy)
    return first, last


def releases_between(
    files: Iterable[Listed], good: str, bad: str, spec: Environment, index: str, supported: frozenset[tags.Tag]
) -> list[Release]:
    """Every final release from `good` to `bad`, in order. Pre-releases, and what was yanked as a whole, are left out;
    what has no wheel for this Python, machine and CUDA is kept, with the reason.

    InputError where `good` does not come before `bad`, or one of them is not among the releases.
    """
    first, last = in_order(good, bad)
    local = spec.cuda_tag if index == spec.wheel_index and index != PYPI and spec.index is None else None
    found: dict[Version, list[str]] = {}
    for item in files:
        try:
            name, version, _, given = parse_wheel_filename(item.filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        public = Version(version.public)
        if name != "torch" or item.yanked or version.is_prerelease or not first <= public <= last:
            continue
        problem = ""
        if local is not None and version.local != local:
            problem = f"no wheel for CUDA {spec.cuda}"
        elif not given & supported or not _admits(item.requires_python, spec.python):
            problem = f"no wheel for Python {spec.python} on this machine"
        found.setdefault(public, []).append(problem)
    for option, end in (("--good", first), ("--bad", last)):
        if end not in found:
            raise InputError(
                f"{option} {end}: not a release on {index}", "pypi.org/project/torch/#history lists the releases"
            )
    return [
        # The reason of the file that comes nearest: for the right CUDA, and another Python.
        Release(version=str(version), skipped="" if "" in problems else max(problems, key=lambda p: "Python" in p))
        for version, problems in sorted(found.items())
    ]


def _admits(requires_python: str, python: str) -> bool:
    try:
        return SpecifierSet(requires_python).contains(f"{python}.99")
    except InvalidSpecifier:
        return True
