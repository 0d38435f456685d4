"""What method.html.j2 states: how it was measured and which rule decides, so that a reader can judge a number. Pure."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from harness.config.matrix import parse_matrix
from harness.errors import InputError
from harness.schema.records import TargetTiming
from harness.stats.decide import POWER
from harness.stats.effects import BIWEIGHT_BLOCKS
from reports.compare.gpus import gpu_launches
from reports.render.report import Report

GIB = 1 << 30


def observed_range(values: Iterable[float | None], form: str = "{:.3g}") -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "not recorded"
    low, high = form.format(known[0]), form.format(known[-1])
    return low if low == high else f"{low} to {high} (median {form.format(known[len(known) // 2])})"


def confinement(report: Report) -> dict[str, list[str]]:
    """What kernels could reach, as each environment's own process observed it, to the environments' names."""
    found: dict[str, list[str]] = {}
    for name, record in report.evidence.environments.items():
        seen = record.observed.confinement if record.observed else None
        if seen is None or record.executor in ("venv", "host"):
            continue
        networks = ", ".join(sorted(set(seen.networks) - {"lo"}))
        facts = [
            "root" if seen.user_id == 0 else f"user {seen.user_id}, not root",
            f"networks {networks}" if networks else "no network",
            "no capabilities" if not int(seen.capabilities or "1", 16) else f"capabilities {seen.capabilities}",
            "no new privileges" if seen.no_new_privileges else "new privileges possible",
            "a seccomp filter" if seen.seccomp == 2 else "no seccomp filter",
            "a writable root" if seen.root_writable else "a read-only root file system",
            f"{seen.memory_bytes / GIB:.3g} GiB of memory" if seen.memory_bytes else "unlimited memory",
            f"{seen.processes} processes" if seen.processes else "unlimited processes",
        ]
        found.setdefault(", ".join(facts), []).append(name)
    return found


def refused(matrix_text: str) -> str:
    """Why this version does not take a run's matrix.yaml, and what to do about it; empty where it does."""
    try:
        parse_matrix(matrix_text)
    except InputError as error:
        return f"{error.message} ({error.remedy})"
    return ""


def confirmed(timings: Sequence[TargetTiming]) -> str:
    """What orders take, as shares of the kernels' own times on a GPU."""
    shares = {
        "cold": [t.ordered_us / statistics.median(t.samples_us) for t in timings if t.ordered_us and t.samples_us],
        "hot": [t.hot_ordered_us / statistics.median(t.hot_us) for t in timings if t.hot_ordered_us and t.hot_us],
    }
    said = [f"{statistics.median(found):.0%} of its {kind} time" for kind, found in shares.items() if found]
    return " and ".join(said)


def method_values(report: Report) -> dict[str, Any]:
    evidence = report.evidence
    launches = [launch for group in evidence.launch_records.values() for launch in group]
    timings = [timing for launch in launches for timing in launch.timings]
    validations = list(evidence.validations.values())
    return {
        "command": shlex.join(evidence.run.command),
        "refused": refused(evidence.run.matrix_text),
        "confinement": confinement(report),
        "launches": launches,
        "loads": [launch.load for launch in launches if launch.load is not None],
        "watched": [launch.gpu for launch in gpu_launches(evidence) if launch.gpu is not None],
        "threads": sorted({launch.threads for launch in launches if launch.threads is not None}),
        "clocks": sorted({timing.clock for timing in timings if timing.clock}),
        "asked": [timing for timing in timings if timing.asking_us is not None],
        "ordered": confirmed(timings),
        "checked": sum(timing.checked for timing in timings),
        "overheads": [launch.overhead_s for launch in launches if launch.overhead_s],
        "decides": sorted({record.decides for record in validations}),
        "limits": sorted({f"{name} {value:g}" for record in validations for name, value in record.limits.items()}),
        "costs": [cost for record in validations for recipe in record.recipes for cost in recipe.rounding_cost],
        "tested": sum(timed.p_value is not None for row in report.rows for timed in row.timed),
        "added": sum(launch.index >= evidence.run.launches for launch in launches),
        "range": observed_range,
        "power": POWER,
        "biweight_blocks": BIWEIGHT_BLOCKS,
        "min_effects": {device: evidence.min_effect(device) for device in sorted({row.device for row in report.rows})},
    }
