"""The outcome of all that a run planned: environments, cells, and what failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from harness.schema.records import Outcome
from harness.worker import protocol
from harness.worker.protocol import Fault
from reports.compare.rows import is_control
from reports.load.evidence import Evidence
from reports.load.groups import grouped


@dataclass(frozen=True, kw_only=True)
class Version:
    """An environment as requested, and as observed from inside (None: not observed)."""

    id: str
    baseline: bool
    control: bool
    asked: str
    torch: str | None
    cuda_build: str | None
    python: str | None
    status: str
    message: str
    packages: str  # of its own, beside PyTorch: "triton 3.2.0"


@dataclass(frozen=True, kw_only=True)
class CellState:
    """One planned cell, the baseline's included."""

    id: str
    environment: str
    kernel: str
    workload: str
    device: str
    status: str
    message: str
    launches: int
    median_us: float | None


@dataclass(kw_only=True)
class Failure:
    """Something that failed in each of `places`, with the end of its log."""

    where: str
    places: list[str]
    status: str
    message: str
    log_excerpt: str


def version_of(evidence: Evidence, name: str) -> Version:
    record = evidence.environments.get(name)
    seen = record.observed if record else None
    return Version(
        id=name,
        baseline=name == evidence.run.baseline,
        control=is_control(evidence, name),
        asked=f"PyTorch {record.torch}, CUDA {record.cuda}, Python {record.python}" if record else "not recorded",
        torch=seen.torch if seen else None,
        cuda_build=seen.torch_cuda if seen else None,
        python=seen.python if seen else None,
        status=record.status if record else "not_run",
        message=record.message if record else "the run has no record of this environment",
        packages=", ".join(f"{name} {version}" for name, version in record.packages.items()) if record else "",
    )


def cell_states(evidence: Evidence) -> list[CellState]:
    found = []
    for cell in evidence.run.cells:
        outcome = evidence.outcome(cell)
        times = [row.median_us for row in evidence.timed(cell, protocol.KERNEL) if row.median_us is not None]
        found.append(
            CellState(
                id=cell.id,
                **vars(cell),
                status=outcome.status,
                message=outcome.message,
                launches=len(times),
                median_us=median(times) if times else None,
            )
        )
    return found


def failures(evidence: Evidence) -> list[Failure]:
    """Return environments, builds, validations and launches that failed, in that order: first causes first. The same
    failure with the same message is told once, with all its places."""
    found: dict[tuple[str, str, str], Failure] = {}
    for where, place, outcome in _outcomes(evidence):
        told = outcome.status not in ("ok", "not_run", "wrong") or (outcome.status == "wrong" and outcome.message)
        if told or outcome.fault is not Fault.SUBJECT:
            key = (where, outcome.status, outcome.message)
            new = Failure(where=where, places=[], status=outcome.status, message=outcome.message, log_excerpt="")
            entry = found.setdefault(key, new)
            entry.places += [place] if place not in entry.places[-1:] else []
            entry.log_excerpt = entry.log_excerpt or outcome.log_excerpt
    return list(found.values())


def _outcomes(evidence: Evidence) -> Iterator[tuple[str, str, Outcome]]:
    """Yield what ended, with the place where it did: in short, and in full."""
    for environment in evidence.environments.values():
        yield environment.id, environment.id, environment
    for build in evidence.builds.values():
        yield f"build of {build.kernel} ({build.device})", f"build in {build.environment}", build
    for cell_id, record in evidence.validations.items():
        on = f"on {record.workload} ({record.device})"
        if record.status != protocol.BUILD_FAILED:  # that is told with the build
            yield f"{record.kernel} {on}", cell_id, record
        for recipe in record.recipes:
            for result in recipe.targets:
                name = record.kernel if result.target == protocol.KERNEL else result.target
                yield f"{name} {on}", f"{cell_id}, {result.target} on {recipe.recipe} inputs", result
    for launches in evidence.launch_records.values():
        for launch in launches:
            where = f"{launch.environment}/{launch.kernel}/{launch.device}"
            yield f"launches of {launch.kernel} ({launch.device})", f"launch {launch.index} of {where}", launch
            for timing in launch.timings:
                name = launch.kernel if timing.target == protocol.KERNEL else timing.target
                place = f"timing of {timing.target} on {timing.workload} in {where}"
                yield f"{name} on {timing.workload} ({launch.device})", place, timing


def unbuilt(evidence: Evidence) -> list[str]:
    """A sentence for each kernel that some build of failed, or that could not be loaded, with the environments."""
    failed = grouped(
        (f"{build.kernel} ({build.device}) did not {'load' if build.refused else 'build'}", build.environment)
        for build in evidence.builds.values()
        if build.status == protocol.BUILD_FAILED
    )
    return [f"{kernel} in {', '.join(sorted(places))}" for kernel, places in failed.items()]
