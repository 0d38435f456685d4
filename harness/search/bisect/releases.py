"""The releases that a package index has between two, and why some of them cannot be installed here. Pure."""

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


def parse_ends(good: str, bad: str) -> tuple[Version, Version]:
    """Parse both ends. InputError where these are no two versions, the earlier first."""
    try:
        first, last = Version(good), Version(bad)
    except InvalidVersion as error:
        raise InputError(f"{error}: not a version", "give releases, such as 2.5.0, or nightlies") from None
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
) -> list[Release]:
    """Return every release from `good` to `bad`, in order; of two nightlies every nightly, of two candidates every one.

    Other pre-releases, and what was yanked as a whole, are left out; what has no wheel for this Python, machine and
    CUDA is kept, with the reason. InputError where one of the ends is not among the releases.
    """
    first, last = parse_ends(good, bad)
    kinds = {channel(str(first)), channel(str(last))}
    if len(kinds) > 1 and spec.index is None:
        raise InputError(
            f"--good {good} --bad {bad}: PyTorch keeps releases, nightlies and candidates on indexes of their own",
            "give two of a kind, or name an index that has both: `index` in matrix.yaml",
        )
    has_local = index == spec.wheel_index and index != PYPI and spec.index is None
    found: dict[Version, list[str]] = {}
    for item in files:
        try:
            name, version, _, wheel_tags = parse_wheel_filename(item.filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        public = Version(version.public)
        kind = channel(str(public))
        is_wanted = kind in kinds and (bool(kind) or not version.is_prerelease)
        if name != "torch" or item.yanked or not is_wanted or not first <= public <= last:
            continue
        problem = ""
        if has_local and version.local != spec.cuda_tag:
            problem = f"no wheel for CUDA {spec.cuda}"
        elif not wheel_tags & supported or not _admits(item.requires_python, spec.python):
            problem = f"no wheel for Python {spec.python} on this machine"
        found.setdefault(public, []).append(problem)
    for option, end in (("--good", first), ("--bad", last)):
        if end not in found:
            remedy = kept_there(files, str(end)) or "pypi.org/project/torch/#history lists the releases"
            raise InputError(f"{option} {end}: not {NAMES[channel(str(end))]} on {index}", remedy)
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
