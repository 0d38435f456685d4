"""A run's times and peaks of memory in formats that services for continuous benchmarking read. Pure.

Bencher: https://bencher.dev/docs/reference/bencher-metric-format, for `bencher run --adapter json`.
github-action-benchmark: `tool: customSmallerIsBetter` of https://github.com/benchmark-action/github-action-benchmark.

Results of wrong outputs are left out: a time is worth nothing without a right result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from typing_extensions import assert_never

from reports.compare.rows import compare
from reports.load.evidence import Evidence
from reports.model import LatencySide
from reports.render.report import TargetTimes, list_times


class Format(Enum):
    BENCHER = "bencher"
    GITHUB_ACTION_BENCHMARK = "github-action-benchmark"


class Measure(Enum):
    """What was measured, by the name that Bencher gives it; its built-in `latency` is in nanoseconds."""

    LATENCY = "latency"
    GRAPH_REPLAY = "graph-replay"
    BACKWARD = "backward"
    PEAK_MEMORY = "peak-memory"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`value` in nanoseconds or bytes; its interval where there are enough replicates for one."""

    benchmark: str
    measure: Measure
    value: float
    low: float | None = None
    high: float | None = None


def find_metrics(evidence: Evidence) -> Iterator[Metric]:
    """Yield what was measured of each kernel, operator and reference, on each workload in each environment."""
    for each in list_times(evidence, compare(evidence)):
        row = each.row
        benchmark = f"{row.target} {row.workload} {row.device} {each.cold.environment}"
        if each.cold.wrong_output:
            continue
        yield from _find_times(benchmark, each)
        if each.memory.peak_bytes is not None:
            yield Metric(benchmark=benchmark, measure=Measure.PEAK_MEMORY, value=each.memory.peak_bytes)


def _find_times(benchmark: str, each: TargetTimes) -> Iterator[Metric]:
    times: dict[Measure, LatencySide | None] = {
        Measure.LATENCY: each.cold,
        Measure.GRAPH_REPLAY: each.hot,
        Measure.BACKWARD: each.backward,
    }
    for measure, side in times.items():
        if side is None or side.median_us is None or side.wrong_output:
            continue
        low, high = (None if us is None else 1000 * us for us in (side.low_us, side.high_us))
        yield Metric(benchmark=benchmark, measure=measure, value=1000 * side.median_us, low=low, high=high)


def render_export(evidence: Evidence, format: Format) -> str:
    """Return the JSON text of a run's metrics; an empty list or object where it has none."""
    metrics = list(find_metrics(evidence))
    match format:
        case Format.BENCHER:
            return json.dumps(_render_bencher(metrics), indent=1)
        case Format.GITHUB_ACTION_BENCHMARK:
            return json.dumps([_render_entry(metric) for metric in metrics], indent=1, ensure_ascii=False)
        case _:
            assert_never(format)


def _render_bencher(metrics: list[Metric]) -> dict[str, dict[str, dict[str, float]]]:
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for metric in metrics:
        values = {"value": metric.value}
        if metric.low is not None and metric.high is not None:
            values |= {"lower_value": metric.low, "upper_value": metric.high}
        benchmarks.setdefault(metric.benchmark, {})[metric.measure.value] = values
    return benchmarks


def _render_entry(metric: Metric) -> dict[str, Any]:
    """Return one entry of `customSmallerIsBetter`: its `range` is a text, and half the interval's width here."""
    entry: dict[str, Any] = {"name": f"{metric.benchmark} {metric.measure.value}", "value": metric.value}
    if metric.measure is Measure.PEAK_MEMORY:
        return entry | {"unit": "bytes"}
    entry |= {"unit": "ns"}
    if metric.low is not None and metric.high is not None:
        entry["range"] = f"± {(metric.high - metric.low) / 2:.4g}"
    return entry
