"""The GPUs of a run: their state, their measured peaks and what times amount to beside them, and what ran. Pure.

A share's peak is measured, not taken from a data sheet: a large matrix product of the workload's dtype, and a large
copy within the device's memory. Replays may find their inputs in the cache, so a hot share of the copy can exceed 100%.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from harness.schema.environment_records import CeilingRecord
from harness.schema.records import LaunchRecord
from harness.schema.run_records import Cell, GpuFacts, WorkloadInfo
from reports.load.evidence import Evidence
from reports.load.groups import grouped
from reports.model import Rates
from reports.sentences import sentence
from reports.text import words

# An environment's SM clock this far from the baseline's moves latency by as much.
CLOCK_MOVED = 0.01
OPERATOR = "aten::"


class Card(GpuFacts):
    """One GPU, and its measured peaks or why there are none. None: not recorded."""

    ceiling: CeilingRecord | None
    ceiling_message: str

    @property
    def text(self) -> str:
        """Return what a reader must know of a GPU to compare its times with another's."""
        return sentence("gpus", "card", self)

    @property
    def peak_text(self) -> str:
        """Return what it reached in this run, or why that is not known."""
        return sentence("gpus", "peak", self.ceiling) if self.ceiling else self.ceiling_message


@dataclass(frozen=True, kw_only=True)
class ProfiledImplementation:
    """One implementation's operators and device functions, as the profiler saw them, and the workloads they ran for.
    Without operators `message` says why."""

    environment: str
    target: str
    operators: list[str]
    functions: list[str]
    workloads: list[str]
    message: str = ""


def gpu_launches(evidence: Evidence) -> Iterator[LaunchRecord]:
    for (_, _, device), launches in evidence.launch_records.items():
        if device == "cuda":
            yield from launches


def cards(evidence: Evidence) -> list[Card]:
    """The GPUs that the run measured on; before any launch, those of the machine."""
    if not any(cell.device == "cuda" for cell in evidence.run.cells):
        return []
    used = {launch.gpu.uuid for launch in gpu_launches(evidence) if launch.gpu is not None} | evidence.ceilings.keys()
    known = {gpu.uuid: gpu for gpu in evidence.run.gpus}
    for environment in evidence.environments.values() if not known else ():
        for gpu in environment.observed.gpus if environment.observed else []:
            facts = GpuFacts(
                uuid=gpu.uuid,
                name=gpu.name,
                driver=gpu.driver,
                memory_bytes=gpu.memory_bytes,
                ecc=None,
                mig=None,
                power_limit_w=None,
                max_sm_mhz=None,
            )
            known.setdefault(gpu.uuid, facts)
    return [_card(evidence, gpu) for uuid, gpu in known.items() if uuid in used or not used]


def _card(evidence: Evidence, gpu: GpuFacts) -> Card:
    record, message = evidence.ceilings.get(gpu.uuid), "none recorded in this run"
    if record is not None:
        message = "" if record.status == "ok" else f"{words(record.status)}: {record.message or 'no message'}"
    return Card(**vars(gpu), ceiling=None if message else record, ceiling_message=message)


def gpu_confounders(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """(subject, statement): what made the GPU's times less certain."""
    launches = list(gpu_launches(evidence))
    throttled = [sum(timing.throttled_samples for timing in launch.timings) for launch in launches]
    if any(throttled):
        kept = sum(len(timing.samples_us) for launch in launches for timing in launch.timings)
        yield "GPU clock", sentence("gpus", "throttled", launches, throttled, kept)
    others = [launch.gpu.other_processes for launch in launches if launch.gpu is not None]
    if busy := [count for count in others if count]:
        yield "GPU", sentence("gpus", "shared", busy, len(launches))
    clocks = clocks_by_environment(evidence)
    base = clocks.get(evidence.run.baseline)
    for name, mhz in clocks.items():
        if base and abs(mhz / base - 1) > CLOCK_MOVED:
            versions = evidence.names[evidence.run.baseline], evidence.names[name]
            yield name, sentence("gpus", "clock", base, mhz, versions)
    for card in cards(evidence):
        if card.mig:
            yield card.name, sentence("gpus", "sliced")


def clocks_by_environment(evidence: Evidence) -> dict[str, float]:
    """Median SM clock over an environment's launches."""
    launches = gpu_launches(evidence)
    clocks = grouped((launch.environment, launch.gpu.sm_mhz) for launch in launches if launch.gpu and launch.gpu.sm_mhz)
    return {name: statistics.median(values) for name, values in clocks.items()}


def what_ran(evidence: Evidence, device: str) -> list[ProfiledImplementation]:
    """Per environment and reference, one entry for each set of operators, or for each reason why there are none."""
    found: dict[tuple[str, str, tuple[str, ...], str], dict[str, None]] = {}
    environments = evidence.run.environments
    for cell in sorted(evidence.run.cells, key=lambda cell: environments.index(cell.environment)):
        record = evidence.validations.get(cell.id) if cell.device == device else None
        last = {result.target: result for recipe in (record.recipes if record else []) for result in recipe.targets}
        for reference, result in last.items():
            if reference in evidence.references(cell.kernel, device):
                reason = "" if result.status in ("ok", "wrong") else result.message or result.status
                key = (cell.environment, reference, tuple(result.operators), reason)
                found.setdefault(key, {})[cell.workload] = None
    return [
        ProfiledImplementation(
            environment=environment,
            target=target,
            operators=[each for each in ran if each.startswith(OPERATOR)],
            functions=[each for each in ran if not each.startswith(OPERATOR)],
            workloads=list(workloads),
            message=reason or ("" if ran else "the records name no operator"),
        )
        for (environment, target, ran, reason), workloads in found.items()
    ]


def ceiling_of(evidence: Evidence, cell: Cell) -> tuple[CeilingRecord | None, str]:
    """The measured peaks of the GPU that this cell's launches ran on, or why there are none."""
    if cell.device != "cuda":
        return None, "device peaks are measured on GPUs only"
    watched = {launch.gpu.uuid for launch in evidence.launches_of(cell) if launch.gpu is not None}
    uuids = watched or {gpu.uuid for gpu in evidence.run.gpus} or set(evidence.ceilings)
    if len(uuids) != 1:
        return None, f"launches ran on {len(uuids)} GPUs" if uuids else "which GPU the launches ran on is not recorded"
    uuid = uuids.pop()
    found = evidence.ceilings.get(uuid)
    if found is None:
        return None, f"this run has no measured peaks of {uuid}"
    if found.status != "ok":
        return None, f"measured peaks {words(found.status)}: {found.message or 'no message'}"
    return found, ""


def rates(info: WorkloadInfo | None, ceiling: CeilingRecord | None, message: str, median_us: float) -> Rates:
    """Return what a median amounts to in FLOP/s and bytes/s, and as shares of the device's peaks."""
    if info is None or not (info.flops or info.bytes):
        return Rates(message="the operations and bytes of this workload are unknown")
    tflops = info.flops / median_us / 1e6 if info.flops else None
    gbps = info.bytes / median_us / 1e3 if info.bytes else None
    if ceiling is None:
        return Rates(tflops=tflops, gbps=gbps, message=message)
    matmul, copy = ceiling.matmul_tflops.get(info.dtype), ceiling.copy_gbps
    return Rates(
        tflops=tflops,
        gbps=gbps,
        tflops_share=tflops / matmul if tflops and matmul else None,
        gbps_share=gbps / copy if gbps and copy else None,
        message=sentence("gpus", "no_peak", matmul, copy, info.dtype),
    )
