"""Which Python environments run on where no wheel of their PyTorch fits the one that they were to have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from harness.config.environments import PYPI, Environment
from harness.config.indexes import choose_indexes
from harness.config.interpreters import find_interpreter
from harness.config.listing import fetch_listing, supported_pythons
from harness.config.matrix import Matrix
from harness.config.pins import known_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError


def fit_pythons(matrix: Matrix, root: Path) -> Matrix:
    """Return the matrix with another Python for all its environments, where a version has no wheel for its own: the
    nearest that all versions have, else for each version the nearest that it has.

    The matrix stays as it is where all is pinned already, and where no index answers: what installs them says so.
    """
    specs = [spec for spec in matrix.pinned_environments if spec.wheel is None]
    try:
        indexes, _ = choose_indexes(matrix, strict=False)
        planned = [PlannedEnvironment(spec=spec, index=indexes[spec.id()]) for spec in specs]
        if all(known_pins(root, each, matrix) for each in planned):
            return matrix
        listings = {index: fetch_listing(index) for index in {each.index for each in planned}}
    except HarnessError:
        return matrix
    known = [supported_pythons(listings[each.index], each.spec.torch, _local(each)) for each in planned]
    if not all(known):
        return matrix
    pythons = nearest_pythons([spec.python for spec in specs], known)
    fitting = dict(zip(map(Environment.id, specs), pythons, strict=True))
    made = [
        spec.model_copy(update={"python": fitting[spec.id()]}) if spec.id() in fitting else spec
        for spec in matrix.environments
    ]
    base = made[matrix.environments.index(matrix.baseline_environment)]
    return matrix.model_copy(update={"environments": made, "baseline": base.id()})


def changed_pythons(before: Matrix, after: Matrix) -> str:
    """Return, in words, what `fit_pythons` changed, or ''."""
    pairs = list(zip(before.environments, after.environments, strict=True))
    if all(old.python == new.python for old, new in pairs):
        return ""
    runs = ", ".join(f"PyTorch {new.torch} runs on Python {new.python}" for _, new in pairs)
    return f"{runs}, because not every version has a wheel for Python {before.environments[0].python}"


def _local(environment: PlannedEnvironment) -> str:
    """Return the local version that marks this environment's build of torch on its index, or ''."""
    spec = environment.spec
    own = environment.index == spec.wheel_index and environment.index != PYPI and spec.index is None
    return spec.cuda_tag if own else ""


def nearest_pythons(asked: Sequence[str], known: Sequence[Collection[str]]) -> list[str]:
    """Return a Python for each version, of those `known` for it: the one that was asked for, where all are known; else
    the nearest to the first that all versions have; else each version's own nearest. Pythons of this machine come
    first, because not every machine can fetch another."""
    if all(python in has for python, has in zip(asked, known, strict=True)):
        return list(asked)
    if shared := set(known[0]).intersection(*known[1:]):
        return [_nearest(asked[0], shared)] * len(asked)
    return [_nearest(python, has) for python, has in zip(asked, known, strict=True)]


def _nearest(asked: str, known: Collection[str]) -> str:
    def distance(python: str) -> tuple[bool, int, int]:
        minor = int(python.partition(".")[2])
        return find_interpreter(python) is None, abs(minor - int(asked.partition(".")[2])), minor

    return min(known, key=distance)
