"""What containers cost, as ratios within one run on one machine.

    python -m benchmarks.containers run [--launches N]   the shipped matrix in containers against virtual environments
    python -m benchmarks.containers image                a second image against installing its wheels
    python -m benchmarks.containers cell                 a container that does nothing: made, filled, run, read, removed

Each needs an engine, and a base image: --base-image, by default the one that `nox -s images -- base` makes. `run` needs
the images and the environments to be there; it takes them in the order ABBA, so that a drift of the machine cancels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.matrix import ROOT, run_harness
from harness.config.environments import PYPI
from harness.config.interpreters import need_interpreter
from harness.config.matrix import load_matrix
from harness.config.pins import pins_path
from harness.config.plan import PlannedEnvironment
from harness.executors.choose import sandbox_limits
from harness.executors.engine import Engine
from harness.executors.images import BASE_TAG, ENVIRONMENT, base_identity, build_image
from harness.tools import cache_folder, uv_command
from tests.container.cells import Cells


def run(base: str, launches: int) -> dict[str, float]:
    walls: dict[str, list[float]] = {"venv": [], "docker": []}
    for executor in ("venv", "docker", "docker", "venv"):
        elapsed_s, _ = run_harness(
            f"--executor={executor}", f"--base-image={base}", f"--launches={launches}", "--fresh", "--device=cpu"
        )
        walls[executor].append(elapsed_s)
    means = {name: statistics.mean(values) for name, values in walls.items()}
    return {
        "launches": launches,
        "venv_s": means["venv"],
        "docker_s": means["docker"],
        "ratio": means["docker"] / means["venv"],
    }


def image(base: str) -> dict[str, float]:
    """Of the matrix's last environment, the others' images being there."""
    engine = Engine()
    spec = load_matrix(ROOT / "matrix.yaml")[0].with_base(base).environments[-1]
    environment = PlannedEnvironment(spec=spec, index=PYPI)
    pins = pins_path(ROOT, environment)
    for known in engine.images():
        if known.labels.get(ENVIRONMENT) == environment.id:
            for tag in known.tags:
                engine.remove_image(tag)
    started = time.monotonic()
    build_image(engine, environment, pins, cache=cache_folder(), base=base_identity(engine, base))
    built_s = time.monotonic() - started
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        uv = uv_command()[0]
        subprocess.run([uv, "venv", "-q", "--python", need_interpreter(spec.python).path, folder], check=True)
        started = time.monotonic()
        subprocess.run(
            [
                uv,
                "pip",
                "install",
                "-q",
                "--no-config",
                "--no-cache",
                "--python",
                f"{folder}/bin/python",
                "--require-hashes",
                "--no-deps",
                "--compile-bytecode",
                "-r",
                str(pins),
            ],
            check=True,
        )
        wheels_s = time.monotonic() - started
    return {"image_s": built_s, "wheels_s": wheels_s, "ratio": built_s / wheels_s}


def cell(base: str, times: int = 20) -> dict[str, float]:
    engine = Engine()
    matrix, _ = load_matrix(ROOT / "matrix.yaml")
    chosen = next(known.id for known in engine.images() if known.labels.get(ENVIRONMENT))
    limits = sandbox_limits(matrix.limits, engine.facts().memory_bytes)
    taken = []
    with tempfile.TemporaryDirectory() as name:
        cells = Cells(engine, chosen, Path(name), limits)
        for _ in range(times):
            started = time.monotonic()
            cells.result("pass")
            taken.append(time.monotonic() - started)
    return {"cells": times, "median_s": statistics.median(taken), "worst_s": max(taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "image", "cell"])
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--base-image", default=BASE_TAG)
    arguments = parser.parse_args()
    if arguments.what == "run":
        result = run(arguments.base_image, arguments.launches)
    else:
        result = {"image": image, "cell": cell}[arguments.what](arguments.base_image)
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


if __name__ == "__main__":
    main()
