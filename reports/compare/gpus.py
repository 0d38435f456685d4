"""The GPUs of a run: which, in what state, what they reached, how busy they were kept, and what ran on them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from harness.schema.records import CeilingRecord, LaunchRecord
from reports.load.evidence import Evidence

# An environment's SM clock this far from the baseline's moves latency by as much.
CLOCK_MOVED = 0.01
OPERATOR = "aten::"


@dataclass(frozen=True, kw_only=True)
class Card:
    """One GPU, and its ceilings or why there are none. None: not recorded."""

    uuid: str
    name: str
    driver: str
    memory_bytes: int
    ecc: bool | None
    mig: bool | None
    power_limit_w: float | None
    max_sm_mhz: int | None
    ceiling: CeilingRecord | None
    ceiling_message: str


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Seconds in which launches warmed up or sampled calls on a GPU, of those they took, of those between the first
    one's start and the last one's end."""

    launches: int
    sampling_s: float
    launches_s: float
    span_s: float

    @property
    def share(self) -> float:
        return self.sampling_s / self.span_s if self.span_s > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Ran:
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
    found = {gpu.uuid: {**gpu.model_dump()} for gpu in evidence.run.gpus}
    for environment in evidence.environments.values() if not found else ():
        for gpu in environment.observed.gpus if environment.observed else []:
            found.setdefault(
                gpu.uuid,
                {
                    "uuid": gpu.uuid,
                    "name": gpu.name,
                    "driver": gpu.driver,
                    "memory_bytes": gpu.memory_bytes,
                    "ecc": None,
                    "mig": None,
                    "power_limit_w": None,
                    "max_sm_mhz": None,
                },
            )
    made = []
    for uuid, values in found.items():
        if used and uuid not in used:
            continue
        record = evidence.ceilings.get(uuid)
        message = "none recorded in this run"
        if record is not None and record.status != "ok":
            message = f"{record.status.replace('_', ' ')}: {record.message or 'no message'}"
        usable = record if record is not None and record.status == "ok" else None
        made.append(Card(**values, ceiling=usable, ceiling_message="" if usable else message))
    return made


def measuring(evidence: Evidence) -> Measuring | None:
    """None where no launch on a GPU recorded it."""
    launches = [launch for launch in gpu_launches(evidence) if launch.sampling_s is not None]
    if not launches:
        return None
    starts = [datetime.fromisoformat(launch.started_utc).timestamp() for launch in launches]
    ends = [start + launch.duration_s for start, launch in zip(starts, launches, strict=True)]
    return Measuring(
        launches=len(launches),
        sampling_s=sum(launch.sampling_s or 0.0 for launch in launches),
        launches_s=sum(launch.duration_s for launch in launches),
        span_s=max(ends) - min(starts),
    )


def _range(values: list[float], form: str = "{:.0f}") -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def gpu_confounders(evidence: Evidence) -> list[tuple[str, str]]:
    """(subject, statement): what made the GPU's times less certain."""
    launches = list(gpu_launches(evidence))
    found = []
    throttled = [sum(timing.throttled_samples for timing in launch.timings) for launch in launches]
    if any(throttled):
        reasons = sorted({reason for launch in launches if launch.gpu for reason in launch.gpu.throttle_reasons})
        kept = sum(len(timing.samples_us) for launch in launches for timing in launch.timings)
        found.append(
            (
                "GPU clock",
                f"the GPU held its clocks back{' (' + ', '.join(reasons) + ')' if reasons else ''}: "
                f"{sum(throttled)} of {kept + sum(throttled)} samples were left out, in "
                f"{sum(map(bool, throttled))} of {len(launches)} launches",
            )
        )
    others = [launch.gpu.other_processes for launch in launches if launch.gpu is not None]
    seen = [count for count in others if count]
    if seen:
        found.append(
            (
                "GPU",
                f"{_range([float(count) for count in seen])} other process"
                f"{'es' if max(seen) > 1 else ''} held the GPU during {len(seen)} of {len(launches)} launches",
            )
        )
    clocks = clocks_by_environment(evidence)
    base = clocks.get(evidence.run.baseline)
    for name, mhz in clocks.items():
        if base and abs(mhz / base - 1) > CLOCK_MOVED:
            found.append(
                (
                    name,
                    f"the SM clock was {base:.0f} MHz in the baseline and {mhz:.0f} in {name} while calls "
                    "were sampled: device time moves with it",
                )
            )
    found += [(card.name, "MIG is on: the times are of a part of the GPU") for card in cards(evidence) if card.mig]
    return found


def clocks_by_environment(evidence: Evidence) -> dict[str, float]:
    """Median SM clock over an environment's launches."""
    seen: dict[str, list[float]] = {}
    for launch in gpu_launches(evidence):
        if launch.gpu is not None and launch.gpu.sm_mhz:
            seen.setdefault(launch.environment, []).append(launch.gpu.sm_mhz)
    return {name: statistics.median(values) for name, values in seen.items()}


def what_ran(evidence: Evidence, device: str) -> list[Ran]:
    """Per environment and reference, one entry for each set of operators, or for each reason why there are none."""
    found: dict[tuple[str, str, tuple[str, ...], str], list[str]] = {}
    for name in evidence.run.environments:
        for cell in evidence.run.cells:
            record = evidence.validations.get(cell.id)
            if cell.environment != name or cell.device != device or record is None:
                continue
            for target in {t.target: t for recipe in record.recipes for t in recipe.targets}.values():
                info = evidence.kernel(cell.kernel)
                if info is None or target.target not in info.references_on(device):
                    continue
                reason = "" if target.status in ("ok", "wrong") else target.message or target.status
                workloads = found.setdefault((name, target.target, tuple(target.operators), reason), [])
                if cell.workload not in workloads:
                    workloads.append(cell.workload)
    return [
        Ran(
            environment=environment,
            target=target,
            operators=[each for each in ran if each.startswith(OPERATOR)],
            functions=[each for each in ran if not each.startswith(OPERATOR)],
            workloads=workloads,
            message=reason or ("" if ran else "the records name no operator"),
        )
        for (environment, target, ran, reason), workloads in found.items()
    ]
