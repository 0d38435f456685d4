"""What a workload needs at least, what a job is expected to need, and what this machine has. Pure.

Lower bounds of what is in memory at one time: a workload that is refused cannot run here. What a job asks a queue for
is more than that: `expected_mib`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil
from pathlib import Path

from harness.config.kernels import Dtype, Kernel
from harness.config.matrix import Matrix
from harness.config.workloads import Workload
from harness.config.yaml_files import line_of
from harness.errors import InputProblem
from harness.preflight import Findings
from harness.run.validate import ARRAY_BYTES, AT_ONCE
from harness.schema.records import DEVICES, Device
from harness.worker import dtypes

FLOAT64_BYTES = 8
FAR = 64  # times as much as there is: then the shape is a mistake, whatever needs so much
# Of a job beside its tensors: processes with PyTorch, several of which are there at once, and compilers.
BESIDE_MIB: dict[Device, int] = {"cpu": 8 << 10, "cuda": 16 << 10}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def needs(workload: Workload, dtype: Dtype, device: Device, *, math: bool) -> dict[str, dict[str, int]]:
    """Bytes by what has the memory, `this machine` or `its GPU`, and by what they are for."""
    shape = workload.shape
    output, shared = (dtypes.size_bytes(dtype, (count,)) for count in (shape.elements, 2 * shape.kv_elements))
    given = {"Q, K and V": output + shared}
    outputs = {"output": output}
    if workload.backward:  # whose row needs most
        given["dO"] = output
        outputs["gradients"] = output + shared
    if masks := workload.masks_bytes(dtype):
        given["mask and draws of dropout"] = masks
    calls = {**given, **outputs}
    if math:  # its logits, and their softmax
        scores = dtypes.size_bytes(dtype, (shape.batch * shape.heads * shape.seq_len * shape.keys,))
        calls["scores of the reference math"] = 2 * scores
    elements = 2 * (shape.elements + shape.kv_elements) if workload.backward else shape.elements
    judging = {"truth and error scale in float64": 2 * FLOAT64_BYTES * elements}
    if device == "cpu":
        return {"this machine": calls | judging}
    return {"this machine": {**given, **outputs, **judging}, "its GPU": calls}


def expected_mib(matrix: Matrix, kernel: Kernel, device: Device, workloads: Collection[str]) -> int | None:
    """What a job of a kernel is expected to need of its machine's memory, in MiB, on these workloads by name or id, or
    on all of its own. None for a problem file: what it needs is not known before it ran."""
    if kernel.problem is not None:
        return None
    own = [each for each in matrix.workloads if kernel.workloads is None or each.name in kernel.workloads]
    math = "math" in ((matrix.references_cuda if device == "cuda" else None) or matrix.references)
    sizes = [
        sum(needs(each, dtype, device, math=math)["this machine"].values())
        for each in own
        for dtype in getattr(each.dtypes, device)
        if not workloads or {each.name, *each.ids(dtype)} & set(workloads)
    ]
    largest = ceil(max(sizes, default=0) / 2**20)
    outputs = min(ARRAY_BYTES >> 20, AT_ONCE * largest)  # of an environment, while they are compared
    return BESIDE_MIB[device] + AT_ONCE * largest + len(matrix.environments) * outputs


def check_memory(
    matrix: Matrix, text: str, path: Path, used: Mapping[str, set[Device]], has: Mapping[str, int]
) -> Findings:
    """`used`: names of the workloads that attention kernels run on, with their devices. `has`: bytes of this machine
    and of its GPU, where they are known."""
    found = Findings()
    for index, workload in enumerate(matrix.workloads):
        for device in (each for each in DEVICES if each in used.get(workload.name, ())):
            references = (matrix.references_cuda if device == "cuda" else None) or matrix.references
            for dtype in getattr(workload.dtypes, device):
                every = needs(workload, dtype, device, math="math" in references)
                problem = _too_large(every, has)
                if problem is None:
                    continue
                others = needs(workload, dtype, device, math=False)
                far = {owner: FAR * size for owner, size in has.items()}
                if _too_large(others, has) is None and _too_large(every, far) is None:  # its row alone fails
                    words = f"workloads[{index}]: {workload.name} in {dtype} on {device}: the reference math"
                    found.unchecked.append(f"{words} may not fit: {problem[0]}")
                    continue
                where = f"{path}:{line_of(text, 'workloads', index, 'shape')}"
                what, remedy = problem
                subject = f"workloads[{index}]: {workload.name} in {dtype} on {device}"
                found.problems.append(InputProblem(where=where, what=f"{subject} {what}", remedy=remedy))
    return found


def _too_large(needed: Mapping[str, Mapping[str, int]], has: Mapping[str, int]) -> tuple[str, str] | None:
    """(what is wrong, the way out); None where all fits, or the size is not known."""
    for owner, parts in needed.items():
        most = has.get(owner, 0)
        if not most or sum(parts.values()) <= most:
            continue
        listed = ", ".join(f"{shown(size)} for {name}" for name, size in parts.items())
        what = f"needs at least {shown(sum(parts.values()))}, and {owner} has {shown(most)}: {listed}"
        if sum(size for name, size in parts.items() if "math" not in name) <= most:
            return what, "shorten seq_len, or leave math out of `references`"
        return what, "take a smaller shape"
    return None


def shown(size_bytes: int) -> str:
    size = float(size_bytes)
    unit = next((unit for number, unit in enumerate(UNITS) if size < 1024 ** (number + 1)), UNITS[-1])
    return f"{size / 1024 ** UNITS.index(unit):.3g} {unit}"
