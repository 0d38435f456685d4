"""The environments of the versions between: made for one answer, 5 GB each, and removed when it is recorded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.config.matrix import Matrix
from harness.errors import DiskFull
from harness.schema.storage import existing
from harness.tools import GIB

NEEDED_GIB = 7  # PyTorch with CUDA's libraries, and what uv unpacks beside them while it installs


def named_environments(matrix: Matrix) -> set[str]:
    """Ids of the environments that matrix.yaml names, from whichever index."""
    return {spec.id(index) for spec in matrix.pinned_environments for index in spec.indexes}


def refuse_without_room(cache: Path) -> None:
    place = existing(cache)
    free = shutil.disk_usage(place).free
    if free < NEEDED_GIB * GIB:
        raise DiskFull(
            place, f"{free / GIB:.1f} GiB are free, and a version between needs {NEEDED_GIB} GiB for a while"
        )


def own_wheels(cache: Path) -> Path:
    return cache / "bisecting-wheels"


@contextmanager
def wheels_apart(cache: Path) -> Iterator[None]:
    """uv keeps what it unpacks in a folder of its own, on the same disk: in its usual cache the wheels of a version
    would stay when the environment is removed, and removing it would free nothing."""
    before = os.environ.get("UV_CACHE_DIR")
    os.environ["UV_CACHE_DIR"] = str(own_wheels(cache))
    try:
        yield
    finally:
        del os.environ["UV_CACHE_DIR"]
        os.environ.update({"UV_CACHE_DIR": before} if before is not None else {})


def remove_own_wheels(cache: Path) -> None:
    shutil.rmtree(own_wheels(cache), ignore_errors=True)
