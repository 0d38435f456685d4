"""How much the harness costs, as ratios within one run on one machine.

    python benchmarks/matrix.py cold       a first `matrix --quick` against plain uv installations of both environments
    python benchmarks/matrix.py warm       an unchanged run, and the share of launch time that is not in launches

`cold` starts from empty caches, twice, and so downloads every wheel twice (about 10 GB).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from harness.config.environments import PYPI  # noqa: E402
from harness.config.interpreters import need_interpreter  # noqa: E402
from harness.config.matrix import load_matrix  # noqa: E402
from harness.schema.storage import Run  # noqa: E402
from harness.tools import uv_command  # noqa: E402


def timed(command: list[str], **environment: str) -> float:
    started = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def run_harness(*arguments: str, **environment: str) -> tuple[float, Run]:
    elapsed_s = timed([sys.executable, "-m", "harness", "matrix", *arguments, "--no-report"], **environment)
    return elapsed_s, Run((ROOT / "reports" / "latest").resolve())


def setup_s(run: Run) -> float:
    """From the run's start to its first validation: environments made and proven, kernels built."""
    first = min(record.started_utc for record in run.validations())
    return (datetime.fromisoformat(first) - datetime.fromisoformat(run.load().created_utc)).total_seconds()


def cold(work: Path) -> dict[str, float]:
    matrix, _ = load_matrix(ROOT / "matrix.yaml")
    plain = 0.0
    for environment in matrix.environments:
        venv, cache = work / environment.id(), str(work / "uv-plain")
        python = need_interpreter(environment.python).path
        pins = ROOT / "docker" / "pins" / f"{environment.id(PYPI)}.txt"
        plain += timed([*uv_command(), "venv", "-q", "--no-config", "--python", python, str(venv)], UV_CACHE_DIR=cache)
        plain += timed(
            [
                *uv_command(),
                "pip",
                "install",
                "-q",
                "--no-config",
                "--python",
                str(venv / "bin" / "python"),
                "--require-hashes",
                "--no-deps",
                "-r",
                str(pins),
            ],
            UV_CACHE_DIR=cache,
        )
        shutil.rmtree(venv)
    shutil.rmtree(work / "uv-plain")
    elapsed_s, run = run_harness(
        "--quick", "--fresh", UV_CACHE_DIR=str(work / "uv-matrix"), KERNEL_MATRIX_CACHE=str(work / "cache")
    )
    prepared_s = max(record.prepared_s or 0 for record in run.environments())
    return {
        "uv_install_s": plain,
        "matrix_s": elapsed_s,
        "prepared_s": prepared_s,
        "setup_s": setup_s(run),
        "prepared_ratio": prepared_s / plain,
        "setup_ratio": setup_s(run) / plain,
    }


def launch_overhead(run: Run) -> float:
    """Time between the first launch's start and the last one's, over the time in launches, less one.

    Starts are recorded in whole seconds, so that this is good to 1 s over the whole phase.
    """
    launches = sorted(run.launches(), key=lambda record: record.position)
    first, last = (datetime.fromisoformat(record.started_utc) for record in (launches[0], launches[-1]))
    return (last - first).total_seconds() / sum(record.duration_s for record in launches[:-1]) - 1


def warm() -> dict[str, float]:
    run_harness("--quick")
    unchanged_s, run = run_harness("--quick")
    return {"unchanged_s": unchanged_s, "launch_overhead_share": launch_overhead(run)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["cold", "warm"])
    parser.add_argument("--work", type=Path, help="a folder with 25 GB free, for `cold`")
    arguments = parser.parse_args()
    if arguments.which == "warm":
        result = warm()
    else:
        with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
            result = cold(Path(folder))
    print(json.dumps({name: round(value, 3) for name, value in result.items()}, indent=1))


if __name__ == "__main__":
    main()
