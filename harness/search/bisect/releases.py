"""The releases that a package index has between two, and why some of them cannot be installed here."""

from __future__ import annotations

from collections.abc import Sequence

from packaging import tags
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from harness.config.environments import CANDIDATE, NIGHTLY, PYPI, Environment, channel
from harness.config.listing import Listed, kept_there
from harness.errors import InputError
from harness.schema.bisection_records import Release

NAMES = {"": "a release", NIGHTLY: "a nightly", CANDIDATE: "a release candidate"}


def parse_version(text: str, option: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise InputError(f"{option} {text}: not a version", "give a release, such as 2.5.0, or a nightly") from None


def in_order(good: str, bad: str) -> tuple[Version, Version]:
    """InputError where these are no two releases, the earlier first: nobody needs to be asked to see that."""
    first, last = parse_version(good, "--good"), parse_version(bad, "--bad")
    if first >= last:
        remedy = "exchange them" if first > last else "give two of them"
        raise InputError(f"--good {good} --bad {bad}: the good one must be the earlier", remedy)
    return first, last


def releases_between(
    files: Sequence[Listed],
    good: str,
    bad: str,
    spec: Environment,
    index: str,
    supported: frozenset[tags.Tag],
    package: str = "torch",
) -> list[Release]:
    """Every release from `good` to `bad`, in order; of two nightlies every nightly, of two release candidates every
    candidate. Other pre-releases, and what was yanked as a whole, are left out; what has no wheel for this Python,
    machine and CUDA is kept, with the reason.

    InputError where `good` does not come before `bad`, or one of them is not among the releases.
    """
    first, last = in_order(good, bad)
    kinds = {channel(str(first)), channel(str(last))}
    if len(kinds) > 1 and package == "torch" and spec.index is None:
        raise InputError(
            f"--good {good} --bad {bad}: PyTorch keeps releases, nightlies and candidates on indexes of their own",
            "give two of a kind, or name an index that has both: `index` in matrix.yaml",
        )
    own = package == "torch"
    local = spec.cuda_tag if own and index == spec.wheel_index and index != PYPI and spec.index is None else None
    found: dict[Version, list[str]] = {}
    for item in files:
        try:
            name, version, _, given = parse_wheel_filename(item.filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        public = Version(version.public)
        kind = channel(str(public))
        wanted = kind in kinds and (bool(kind) or not version.is_prerelease)
        if name != package or item.yanked or not wanted or not first <= public <= last:
            continue
        problem = ""
        if local is not None and version.local != local:
            problem = f"no wheel for CUDA {spec.cuda}"
        elif not given & supported or not _admits(item.requires_python, spec.python):
            problem = f"no wheel for Python {spec.python} on this machine"
        found.setdefault(public, []).append(problem)
    for option, end in (("--good", first), ("--bad", last)):
        if end not in found:
            listed = f"pypi.org/project/{package}/#history lists the releases"
            remedy = kept_there(files, str(end)) if own else ""
            raise InputError(f"{option} {end}: not {NAMES[channel(str(end))]} on {index}", remedy or listed)
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
