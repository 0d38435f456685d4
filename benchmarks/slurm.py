"""What many nodes are worth, and what a job costs: `python -m benchmarks.slurm`, as root, with a Slurm of Debian's.

Eight equal shards on four nodes against one, on a Slurm with four nodes on this machine; then shards with nothing to
do. A shard's work is a wait, so that four of them do not share the few processors here; queueing, starting, watching
and finding results is what `kernel-matrix matrix --on slurm` does.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.cluster.campaign import Campaign
from harness.cluster.shards import Shard, plan_shards
from harness.cluster.slurm import Slurm
from harness.config.matrix import load_matrix
from harness.schema.storage import save_record
from tests.cluster.conftest import Cluster
from tests.unit.spec import Spec
from tests.unit.synthetic import write_run

KERNELS = 8
MATRIX = """\
environments: [{torch: "2.5.0", cuda: "12.1", python: "3.11"}]
kernels:
"""
WORKLOADS = """\
workloads:
  - {name: w, shape: {batch: 1, heads: 1, seq_len: 65, head_dim: 64}, dtypes: {cpu: [float32]}}
"""


class Waiting(Shard):
    """Its job waits, and puts the finished run in place that was made beforehand."""

    @property
    def command(self) -> list[str]:
        return ["sh", str(self.folder / "work.sh")]


def shards_of(folder: Path, seconds: float) -> list[Shard]:
    names = [f"k{number}" for number in range(KERNELS)]
    lines = [f"  - {{name: {name}, sources: {{cpu: [{name}.cpp]}}}}\n" for name in names]
    (folder / "matrix.yaml").write_text(MATRIX + "".join(lines) + WORKLOADS)
    for name in names:
        (folder / f"{name}.cpp").write_text("//\n")
    matrix, _ = load_matrix(folder / "matrix.yaml")
    shards = []
    for each in plan_shards(matrix, folder, folder / "shards", [], ("cpu",), []):
        shard = Waiting(kernel=each.kernel, device=each.device, folder=each.folder)
        run = write_run(shard.folder / "ready", Spec(kernels=(shard.kernel,)))
        save_record(run.run_path(), replace(run.load(), finished_utc="2026-01-01T00:00:00+00:00"))
        runs = shard.project / "reports" / "runs"
        work = f"sleep {seconds}; mkdir -p {runs}; mv {run.folder} {runs}/20260101-0-x\n"
        (shard.folder / "work.sh").write_text(work)
        shards.append(shard)
    return shards


def spent_s(options: dict[str, str], seconds: float) -> float:
    """From the first shard that is queued to the last one that is known to have finished."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = shards_of(folder, seconds)
        matrix, text = load_matrix(folder / "matrix.yaml")
        began = time.monotonic()
        campaign = Campaign(matrix, text, folder, shards, Slurm(options))
        campaign.queue()
        campaign.wait(lambda *_: None)
        assert all(shard.run() is not None for shard in shards)
        return time.monotonic() - began


@contextmanager
def slurm() -> Iterator[None]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # daemons write until they have ended
        cluster = Cluster(Path(name))
        os.environ |= cluster.variables
        try:
            yield
        finally:
            cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="that a shard lasts; default: 60")
    seconds = parser.parse_args().seconds
    with slurm():
        idle = spent_s({}, 0.0)
        four, one = spent_s({}, seconds), spent_s({"nodelist": "n1"}, seconds)
    found = {
        "a shard lasts, s": seconds,
        "eight on four nodes, s": round(four, 1),
        "eight on one node, s": round(one, 1),
        "four nodes over one": round(four / one, 3),
        "eight with nothing to do on four nodes, s": round(idle, 1),
        "a job's own time, s": round(idle / (KERNELS / 4), 1),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
