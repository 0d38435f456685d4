"""Makes the pinned environments of matrix.yaml, or finds them made: `python -m tests.environments.pinned`.

`nox -s tests` runs this before the tests, so that a download of minutes is seen to go on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness.config.environments import PYPI
from harness.config.matrix import load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError
from harness.executors.venv import VenvExecutor
from harness.tools import cache_folder
from tests.conftest import ROOT


def prepare() -> Iterator[Path]:
    """The interpreter of each environment, as soon as it is there. AssertionError where one cannot be made."""
    matrix, _ = load_matrix(ROOT / "matrix.yaml")
    executor = VenvExecutor(cache_folder(), threads=2)
    for spec in matrix.environments:
        environment = PlannedEnvironment(spec=spec, index=PYPI)
        record = executor.prepare(environment, ensure_pins(ROOT, environment, matrix)[0])
        assert record.status == "ok", record.message
        yield executor.folder(record) / "venv" / "bin" / "python"


def main() -> int:
    print("PyTorch for the tests: several GB are downloaded where the cache does not hold them yet", flush=True)
    started = time.monotonic()
    try:
        for python in prepare():
            print(f"{python.parents[2].name}: ready after {time.monotonic() - started:.0f} s", flush=True)
    except (AssertionError, HarnessError) as error:
        print(f"{error}\ntests that need PyTorch will fail; all others run", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
