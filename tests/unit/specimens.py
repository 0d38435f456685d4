"""Small specimens as their authors write them, a run of theirs that is written at once, and causes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.spec import Spec
from tests.unit.synthetic import write_run

SMALL = """\
half: development
causes: [build_moved, kernel_code_moved]
story: Right in the one and wrong in the other, since the flags are others there.
shows: {validation: [[ok], [wrong, crashed]]}
environments:
  - {torch: "2.1.0"}
  - {torch: "2.5.0", flags: {cxx: [-ffast-math]}, variables: {OMP_NUM_THREADS: "1"}}
kernel: {sources: {cpu: [attention.cpp]}}
workloads:
  - {name: plain, shape: {batch: 1, heads: 1, seq_len: 8, head_dim: 64}, dtypes: {cpu: [float32]}}
"""
HEALTHY = SMALL.replace("[build_moved, kernel_code_moved]", "[nothing_moved, build_moved]")


def written(folder: Path, **changes: Any) -> Any:
    return write_run(folder, Spec(kernels=("attention",), workloads=("plain-fp32",), launches=2, **changes))


@dataclass(frozen=True)
class Given:
    """A cause, as attribution gives one."""

    cause: str
    grade: str = "strong"
    kernel: str = "attention"
    device: str = "cpu"
    parts: tuple[Given, ...] = ()
