"""What a workload needs at least, and what this machine has. Pure.

Lower bounds of what is in memory at one time, whatever computes it: a workload that is refused cannot run here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.config.kernels import Dtype
from harness.config.matrix import Matrix
from harness.config.workloads import Workload
from harness.config.yaml_files import line_of
from harness.errors import InputProblem
from harness.preflight import Findings
from harness.schema.records import DEVICES, Device
from harness.worker import dtypes

FLOAT64_BYTES = 8
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def tensor_bytes(workload: Workload, dtype: Dtype) -> int:
    """Return the bytes of inputs and outputs."""
    shape = workload.shape
    output, shared = (dtypes.size_bytes(dtype, (count,)) for count in (shape.elements, 2 * shape.kv_elements))
    gradients = 2 * output + shared if workload.backward else 0
    return 2 * output + shared + gradients + workload.masks_bytes(dtype)


def judging_bytes(workload: Workload) -> int:
    """Return the bytes of the ground truth and its error scale, in float64 on the CPU."""
    shape = workload.shape
    elements = 2 * (shape.elements + shape.kv_elements) if workload.backward else shape.elements
    return 2 * FLOAT64_BYTES * elements


def check_memory(
    matrix: Matrix, text: str, path: Path, used: Mapping[str, set[Device]], has: Mapping[Device, int]
) -> Findings:
    """Find workloads that cannot fit. `used`: names of the workloads that attention kernels run on, with their devices.
    `has`: bytes of this machine and of its GPU; 0 where they are not known."""
    found = Findings()
    for index, workload in enumerate(matrix.workloads):
        for device in (each for each in DEVICES if each in used.get(workload.name, ())):
            for dtype in getattr(workload.dtypes, device):
                tensors, judging = tensor_bytes(workload, dtype), judging_bytes(workload)
                needed: dict[Device, int] = {"cpu": tensors + judging}
                if device == "cuda":
                    needed["cuda"] = tensors
                for owner, size in needed.items():
                    if 0 < has.get(owner, 0) < size:
                        place = "this machine" if owner == "cpu" else "its GPU"
                        what = f"needs at least {shown(size)}, and {place} has {shown(has[owner])}"
                        found.problems.append(
                            InputProblem(
                                where=f"{path}:{line_of(text, 'workloads', index, 'shape')}",
                                what=f"workloads[{index}]: {workload.name} in {dtype} on {device} {what}",
                                remedy="take a smaller shape",
                            )
                        )
                        break
    return found


def shown(size_bytes: int) -> str:
    """Return a size for people."""
    size = float(size_bytes)
    unit = next((unit for number, unit in enumerate(UNITS) if size < 1024 ** (number + 1)), UNITS[-1])
    return f"{size / 1024 ** UNITS.index(unit):.3g} {unit}"
