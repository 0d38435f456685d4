"""The measured figures that benchmarks/cluster_simulation.py computes with: of recorded runs, and of this machine.

python -m benchmarks.cluster_figures      measures the second kind again, for benchmarks/results.json
"""

from __future__ import annotations

import json
import math
import shutil
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

import numpy as np

from harness.cluster.shards import plan_shards, seal
from harness.config.matrix import load_matrix
from harness.run.pairwise import compare_trial
from harness.schema.records import CrossingRecord, LaunchRecord, ValidationRecord
from harness.schema.storage import Run, load_any, load_record

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "reports" / "records"
COMMAND = "python -m benchmarks.cluster_figures"
MERGING = "python -m benchmarks.shards --shards 200 --whole"
STORED_TRIALS = 2  # outputs kept of each recipe: `harness.run.validate.ARRAY_TRIALS`
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class Outputs:
    """Of one workload: the outputs that are kept of each environment, compared in pairs (`harness.run.pairwise`)."""

    each: float  # outputs of an environment: the kernel's, and one of each reference
    recipes: float
    elements: float
    pair_bytes: float  # of the record

    def pairs(self, environments: float) -> float:
        outputs = environments * self.each + 1  # the truth
        return self.recipes * outputs * (outputs - 1) / 2


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one kernel in one recorded run. Seconds are those in which the GPU is held."""

    run: str
    start_s: float  # from the run's start to its first validation, less what each environment takes below
    environment_s: float  # one environment found and proven
    build_s: float  # one extension; its binding, made once an environment, is not in it
    validation_s: float  # one environment: all workloads, several at once as on that machine
    launch_s: float  # one, with what passes until the next
    workloads: int
    launch_bytes: float  # of a record
    validation_bytes: float
    artifact_bytes: float
    outputs: tuple[Outputs, ...]


@cache
def recorded(name: str) -> Figures:
    """Of `reports/records/NAME.tar.xz`, per kernel where it holds several."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(RECORDS / f"{name}.tar.xz") as packed:
            packed.extractall(folder, filter="data")
        return figures_of(Run(Path(folder, name)))


def figures_of(run: Run) -> Figures:
    record, launches, validations = run.load(), run.launches(), run.validations()
    environments, builds = run.environments(), run.builds()
    kernels, count = len(record.kernels), len(environments)
    timed, judged = _span_s(launches), _span_s(validations)
    compiled = [(each.build_s or 0.0, each.binding_s or 0.0) for each in builds]
    first = min(datetime.fromisoformat(each.started_utc) for each in validations)
    until = (first - datetime.fromisoformat(record.created_utc)).total_seconds()
    prepared = sum(each.prepared_s or 0.0 for each in environments)
    made = prepared + sum(map(sum, compiled))  # two environments at a time
    crossings = [load_record(path, CrossingRecord) for path in sorted(run.folder.glob("crossings/*/*.json"))]
    return Figures(
        run=run.folder.name,
        start_s=max(0.0, until - made / min(2, count)),
        environment_s=prepared / count,
        build_s=sum(build for build, _ in compiled) / len(compiled),
        validation_s=judged / count / kernels,
        launch_s=timed / len(launches),
        workloads=len({each.workload for each in validations}) // kernels,
        launch_bytes=_bytes_of(run, "launches"),
        validation_bytes=_bytes_of(run, "validations"),
        artifact_bytes=sum(each.artifact_bytes or 0 for each in builds) / len(builds),
        outputs=tuple(_outputs(run, crossing, count) for crossing in crossings)[::kernels],
    )


def _span_s(records: list[LaunchRecord] | list[ValidationRecord]) -> float:
    """From the first's start to the last's end."""
    starts = [(datetime.fromisoformat(each.started_utc), each.duration_s or 0.0) for each in records]
    first = min(start for start, _ in starts)
    return max((start - first).total_seconds() + lasted for start, lasted in starts)


def _bytes_of(run: Run, kind: str) -> float:
    sizes = [path.stat().st_size for path in (run.folder / kind).rglob("*.json")]
    return sum(sizes) / len(sizes)


def _outputs(run: Run, crossing: CrossingRecord, environments: int) -> Outputs:
    outputs = len({pair.left for pair in crossing.pairs} | {pair.right for pair in crossing.pairs})
    workload = next(each for each in run.load().workloads if each.id == crossing.workload)
    size = run.crossing_path(crossing.kernel, crossing.device, crossing.workload).stat().st_size
    return Outputs(
        each=(outputs - 1) / environments,
        recipes=len(crossing.pairs) / math.comb(outputs, 2),
        elements=(workload.bytes or 0.0) / 4 / ITEM_BYTES.get(workload.dtype or "", 4),
        pair_bytes=size / len(crossing.pairs),
    )


def measured(name: str, command: str = COMMAND) -> float:
    """Of benchmarks/results.json: what `measure` found, or another command."""
    return float(json.loads((ROOT / "benchmarks" / "results.json").read_text())[command][name])


def merge_ns_per_byte() -> float:
    """Of launches, with their links and folders; other records are few there."""
    launches, size, took_s = (measured(name, MERGING) for name in ("launches", "launch_bytes", "merge_s"))
    return 1e9 * took_s / launches / size


def measure() -> dict[str, float]:
    """What collecting, comparing and sealing cost for each unit, in time of a processor: others may use the machine."""
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(RECORDS / "h200-own-kernel.tar.xz") as packed:
            packed.extractall(name, filter="data")
        run, found = Path(name, "h200-own-kernel"), {}
        for kind in ("launches", "crossings"):
            paths = sorted((run / kind).rglob("*.json"))
            found[f"collect_{kind}_ns_per_byte"] = 1e9 * _collect_s(paths) / sum(path.stat().st_size for path in paths)
    found["compare_ns_per_pair_and_element"] = 1e9 * _compare_s(33, 1 << 18) / math.comb(33, 2) / (1 << 18)
    found["seal_ms_per_shard"] = 1e3 * _seal_s(2000, 20)
    return found


def _collect_s(paths: list[Path]) -> float:
    """As `harness.cluster.collect` reads records; links and the folders of a shared file system are not in it."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        for path in paths:
            load_any(path)
        taken.append(time.process_time() - start)
    return min(taken)


def _compare_s(outputs: int, elements: int) -> float:
    """Float16 outputs that differ in every second element."""
    generator = np.random.default_rng(0)
    values = generator.standard_normal(elements).astype(np.float16)
    moved = {str(n): values + np.float16(0.01) * generator.integers(0, 2, elements) for n in range(outputs)}
    with ThreadPoolExecutor(1) as pool:
        start = time.process_time()
        compare_trial({name: array.astype(np.float16) for name, array in moved.items()}, pool)
        return time.process_time() - start


def _seal_s(kernels: int, shards: int) -> float:
    """A shard of a project with so many kernels, a source each: the mean of so many shards."""
    with tempfile.TemporaryDirectory() as name:
        root, names = Path(name), [f"kernel{number:04d}" for number in range(kernels)]
        (root / "src").mkdir()
        for kernel in names:
            shutil.copyfile(ROOT / "csrc" / "attention_scalar.cu", root / "src" / f"{kernel}.cu")
        text = (RECORDS.parents[1] / "matrix.yaml").read_text()
        head, tail = text.split("kernels:\n")[0], text.partition("\nworkloads:\n")[2]
        rows = [f"  - {{name: {each}, sources: {{cuda: [src/{each}.cu]}}, workloads: [seed]}}" for each in names]
        (root / "matrix.yaml").write_text("\n".join([f"{head}kernels:", *rows, "", f"workloads:\n{tail}"]))
        matrix, text = load_matrix(root / "matrix.yaml")
        planned = plan_shards(matrix, root, root / "reports" / "shards", [], ["cuda"], [])[:shards]
        start = time.process_time()
        for shard in planned:
            seal(shard, matrix, text, root)
        return (time.process_time() - start) / shards


if __name__ == "__main__":
    print(json.dumps({COMMAND: {name: round(value, 3) for name, value in measure().items()}}, indent=2))
