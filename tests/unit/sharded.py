"""A project that is cut into shards, and a GPU, for the tests of those."""

from __future__ import annotations

from pathlib import Path

from harness.cluster.shards import Shard, plan_shards
from harness.config.matrix import load_matrix
from harness.schema.run_records import GpuFacts

MATRIX = """\
environments: [{torch: "2.5.0", cuda: "12.1", python: "3.11"}]
kernels:
  - {name: one, sources: {cpu: [one.cpp], cuda: [one.cu]}}
  - {name: two, sources: {cpu: [two.cpp]}}
workloads:
  - {name: w, shape: {batch: 1, heads: 1, seq_len: 65, head_dim: 64}, dtypes: {cpu: [float32], cuda: [float32]}}
"""
GPU = GpuFacts(
    uuid="GPU-1",
    name="NVIDIA H200",
    driver="580",
    memory_bytes=1,
    ecc=True,
    mig=False,
    power_limit_w=700,
    max_sm_mhz=1980,
)


def lay_out(tmp_path: Path) -> Path:
    """A project with two kernels, one of them for GPUs too."""
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    for name in ("one.cpp", "one.cu", "two.cpp"):
        (tmp_path / name).write_text('#include "beside.h"\n')
    (tmp_path / "beside.h").write_text("// included\n")
    (tmp_path / "docker" / "pins").mkdir(parents=True)
    (tmp_path / "docker" / "pins" / "torch2.5.0.txt").write_text("pins\n")
    return tmp_path


def planned(root: Path, *kernels: str, devices: tuple[str, ...] = ("cpu",)) -> list[Shard]:
    matrix, _ = load_matrix(root / "matrix.yaml")
    return plan_shards(matrix, root, root / "reports" / "shards" / "x", kernels, devices, ["--quick"])  # type: ignore[arg-type]
