"""The environments of the versions between: made for one answer, 5 GB each, and removed when it is known."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.config.matrix import Matrix

WHEELS = "bisecting-wheels"


def name_environments(matrix: Matrix) -> set[str]:
    """Return the ids of the environments that matrix.yaml names, from whichever index."""
    return {spec.id(index) for spec in matrix.pinned_environments for index in spec.indexes}


@contextmanager
def own_wheels(cache: Path) -> Iterator[None]:
    """Let uv keep what it unpacks in a folder of its own, on the same disk, and remove it. In uv's usual cache the
    wheels of a version would stay when its environment is removed, and removing that would free nothing."""
    before = os.environ.get("UV_CACHE_DIR")
    os.environ["UV_CACHE_DIR"] = str(cache / WHEELS)
    try:
        yield
    finally:
        del os.environ["UV_CACHE_DIR"]
        os.environ.update({"UV_CACHE_DIR": before} if before is not None else {})
        shutil.rmtree(cache / WHEELS, ignore_errors=True)
