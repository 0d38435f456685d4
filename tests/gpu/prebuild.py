"""Compiles all that the tests of this folder run, at once, and keeps it for them.

    KERNEL_MATRIX_PROGRAMS=/tmp/programs python -m tests.gpu.prebuild

Tests that are started with the same variable find it there, so that they can run one file a process. Where sources
have changed, extensions are compiled again; plain programs are not: remove the folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gpu import test_sanitizers, test_wgmma_layouts
from tests.gpu.conftest import BUILDS, PROGRAMS, Here, programs


def timed(name: str, make: Callable[[], object]) -> bool:
    """Whether it was made; a failure is printed, and its test says more."""
    started = time.monotonic()
    try:
        make()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[-3000:]}", flush=True)
        return False
    print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
    return True


def main() -> int:
    if not os.environ.get(PROGRAMS):
        print(f"name a folder: {PROGRAMS}=/tmp/programs", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        here, folder = Here(Path(scratch)), programs(Path(scratch))
        jobs: dict[str, Callable[[], object]] = {name: lambda name=name: here.build(name) for name in BUILDS}
        jobs["sanitizers"] = lambda: test_sanitizers.compile_all(folder)
        if test_wgmma_layouts.HOPPER:
            jobs["layouts"] = lambda: test_wgmma_layouts.compile_layouts(folder / "layouts")
        with ThreadPoolExecutor(len(jobs)) as pool:
            made = list(pool.map(timed, jobs, jobs.values()))
    return 0 if all(made) else 1


if __name__ == "__main__":
    sys.exit(main())
