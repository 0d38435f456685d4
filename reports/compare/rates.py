"""What a time amounts to: FLOP/s and bytes/s, and their shares of what the same GPU reached in the same run. Pure.

A share's ceiling is measured, not taken from a data sheet: a large matrix product of the workload's dtype, and a large
copy within the device's memory. Replays may find their inputs in the cache, so that a hot share of the copy can
exceed 100%.
"""

from __future__ import annotations

from harness.schema.records import CeilingRecord
from harness.schema.run_records import WorkloadInfo
from reports.load.evidence import Evidence
from reports.model import Rates


def ceiling_of(evidence: Evidence, environment: str, kernel: str, device: str) -> tuple[CeilingRecord | None, str]:
    """The ceilings of the GPU that these launches ran on, or why there are none."""
    if device != "cuda":
        return None, "ceilings are measured on GPUs"
    launches = evidence.launch_records.get((environment, kernel, device), [])
    watched = {launch.gpu.uuid for launch in launches if launch.gpu is not None}
    uuids = watched or {gpu.uuid for gpu in evidence.run.gpus} or set(evidence.ceilings)
    if len(uuids) != 1:
        return None, f"launches ran on {len(uuids)} GPUs" if uuids else "which GPU the launches ran on is not recorded"
    uuid = uuids.pop()
    found = evidence.ceilings.get(uuid)
    if found is None:
        return None, f"this run holds no ceilings of {uuid}"
    if found.status != "ok":
        return None, f"ceilings {found.status.replace('_', ' ')}: {found.message or 'no message'}"
    return found, ""


def rates(info: WorkloadInfo | None, ceiling: CeilingRecord | None, message: str, median_us: float) -> Rates:
    if info is None or not (info.flops or info.bytes):
        return Rates(message="operations and bytes of this workload are not known")
    tflops = info.flops / median_us / 1e6 if info.flops else None
    gbps = info.bytes / median_us / 1e3 if info.bytes else None
    if ceiling is None:
        return Rates(tflops=tflops, gbps=gbps, message=message)
    matmul, copy = ceiling.matmul_tflops.get(info.dtype), ceiling.copy_gbps
    missing = [f"a product of {info.dtype}"] * (not matmul) + ["a copy"] * (not copy)
    return Rates(
        tflops=tflops,
        gbps=gbps,
        tflops_share=tflops / matmul if tflops and matmul else None,
        gbps_share=gbps / copy if gbps and copy else None,
        message=f"no ceiling was measured for {' and '.join(missing)}" if missing else "",
    )
