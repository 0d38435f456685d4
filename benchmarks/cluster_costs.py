"""What a matrix of 1,000 GPUs, 50 versions and 2,000 kernels costs, on paper, as tables. docs/scale.md tells them.

    python -m benchmarks.cluster_costs [--write benchmarks/cluster_costs.md]      the same numbers each time

GPUs are counted as held while nobody else can have them: of a shard that has its node to itself, all of the node's.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.cluster_figures import measured, merge_ns_per_byte, recorded
from benchmarks.cluster_simulation import HOUR, Assumptions, Cluster, Plan

GB = 1e9
PAGE_MB = 1.74 / 3000  # of a comparison: benchmarks/results.json, benchmarks.report
RANGES: dict[str, tuple[float, float]] = {
    "load": (0.0, 0.8),
    "others_h": (1.0, 24.0),
    "latency_s": (5.0, 300.0),
    "file_system_gb_s": (2.0, 200.0),
    "node_days": (30.0, 1500.0),
    "job_failures_per_h": (0.0, 0.02),
    "spread": (0.0, 1.0),
    "explained_s": (0.0, 900.0),
    "unpacked_gb": (2.0, 6.0),
    "narrower": (1.0, 4.0),
}


@dataclass(frozen=True, kw_only=True)
class Records:
    """What shards leave, and what one process then does with it."""

    launches: int
    files: int  # launches, validations, builds, comparisons and run.json; their logs come on top
    gb: float
    largest_comparison_mb: float
    build_gb: float
    collect_h: float  # read, checked and linked by one processor, on a disk of one's own
    sealed_files: int
    seal_h: float
    rows: int  # of kernels against the baseline
    page_mb: float


def records_of(plan: Plan) -> Records:
    figures, shards = plan.figures, plan.kernels * len(plan.groups)
    sources = plan.kernels if plan.sealed_whole else 1
    cells = plan.kernels * sum(len(group) + 1 for group in plan.groups)
    launches = cells * plan.blocks
    compared = [[each.pairs(len(group) + 1) * each.pair_bytes for each in figures.outputs] for group in plan.groups]
    launch_gb = launches * figures.launch_bytes / GB
    validation_gb = cells * figures.workloads * figures.validation_bytes / GB
    compared_gb = plan.kernels * sum(map(sum, compared)) / GB
    ns = (launch_gb + validation_gb) * merge_ns_per_byte() + compared_gb * measured("collect_crossings_ns_per_byte")
    rows = plan.kernels * (plan.versions - 1) * figures.workloads
    return Records(
        launches=launches,
        files=launches + cells * (figures.workloads + 1) + shards * (len(figures.outputs) + 1),
        gb=launch_gb + validation_gb + compared_gb,
        largest_comparison_mb=max(itertools.chain.from_iterable(compared), default=0) / 1e6,
        build_gb=plan.kernels * plan.versions * figures.artifact_bytes / GB,
        collect_h=ns / HOUR,
        sealed_files=shards * (sources + plan.versions + 1),
        seal_h=shards * plan.between_s / HOUR,
        rows=rows,
        page_mb=rows * PAGE_MB,
    )


def gpu_hours(plan: Plan, seconds: float) -> float:
    return seconds / HOUR * plan.gpus / plan.slots


def columns(plan: Plan, assumed: Assumptions, seed: int = 0) -> dict[str, str]:
    result = Cluster(plan, assumed, seed).run()
    held_h = gpu_hours(plan, result.held_s)
    return {
        "wall, h": f"{result.wall_s / HOUR:.1f}",
        "GPU h": f"{held_h:,.0f}",
        "in launches": f"{gpu_hours(plan, result.launches_s) / held_h:.0%}",
        "in parts of blocks, lost": f"{gpu_hours(plan, result.lost_s) / held_h:.2%}",
        "last one queued, h": f"{result.submitted_s / HOUR:.1f}",
        "mean wait, h": f"{sum(result.waited_s) / len(result.waited_s) / HOUR:.1f}",
        "shard, h (longest)": f"{mean(result.shard_s) / HOUR:.2f} ({max(result.shard_s) / HOUR:.1f})",
        "unpacked, min": f"{max(result.unpacked_s, default=0) / 60:.0f}",
        "read, TB": f"{result.read_gb / 1e3:.1f}",
        "jobs": "; ".join(f"{count:,} {end}" for end, count in sorted(result.ends.items())),
        "no result": f"{result.without_result:,}",
    }


def table(rows: Iterable[tuple[str, dict[str, str]]]) -> Iterator[str]:
    for number, (name, cells) in enumerate(rows):
        if not number:
            yield "| " + " | ".join(["", *cells]) + " |\n" + "|---" * (len(cells) + 1) + "|"
        yield "| " + " | ".join([name, *cells.values()]) + " |"


BASE = Plan()
ALONE = Plan(exclusive=True, processors=16, progress=False)
FORMER = replace(ALONE, sealed_whole=True)


def scenarios() -> Iterator[tuple[str, Plan]]:
    yield "as it is: the **base** below", BASE
    yield "as it was: sealed with all sources, a node to each shard, three attempts", FORMER
    yield "as it was, but sealed with its own sources", ALONE
    yield "and sharing its node", replace(BASE, progress=False)
    for limit_h in (1, 4, 8):
        yield f"base, limit of {limit_h} h", replace(BASE, limit_s=limit_h * HOUR)
    for limit_h in (1, 4):
        thrice = replace(BASE, limit_s=limit_h * HOUR, progress=False)
        yield f"base, limit of {limit_h} h, three attempts in all", thrice
    yield "base, 10 launches and never more", replace(BASE, blocks=10)
    yield "base, built ahead on CPU nodes, 1,000 builds at once", replace(BASE, builders=1000)
    yield "base, the longest first", replace(BASE, longest_first=True)
    for others in (25, 7):
        yield f"base, shards of the baseline + {others}", replace(BASE, others=others)
    yield "base, shards of the baseline + 7, limit of 1 h", replace(BASE, others=7, limit_s=HOUR)


def sensitivity() -> Iterator[tuple[str, dict[str, str]]]:
    """What each assumption is worth, the one that changes the answer most first."""
    base, rows = Assumptions(), []
    was = Cluster(BASE, base).run()
    for name, ends in RANGES.items():
        found = []
        for value in ends:
            change: dict[str, Any] = {name: value}
            if name == "unpacked_gb":
                scale = value / base.unpacked_gb
                change |= {"packed_gb": base.packed_gb * scale, "unpack_s": base.unpack_s * scale}
            found.append(Cluster(BASE, replace(base, **change)).run())
        walls, held = ([getattr(each, key) / getattr(was, key) for each in found] for key in ("wall_s", "held_s"))
        cells = {
            "taken": f"{getattr(base, name):g}",
            "range": f"{ends[0]:g} to {ends[1]:g}",
            "wall time, times": f"{walls[0]:.2f} to {walls[1]:.2f}",
            "GPU hours, times": f"{held[0]:.2f} to {held[1]:.2f}",
            "no result": f"{found[0].without_result} to {found[1].without_result}",
        }
        rows.append((max(abs(math.log(value)) for value in walls), (name, cells)))
    for _, row in sorted(rows, key=lambda each: -each[0]):
        yield row


def record_cells(plan: Plan) -> dict[str, str]:
    found = records_of(plan)
    return {
        "launches": f"{found.launches:,}",
        "records": f"{found.files / 1e6:.1f} million, {found.gb:,.0f} GB",
        "largest comparison": f"{found.largest_comparison_mb:.1f} MB",
        "built": f"{found.build_gb:.0f} GB",
        "collected in": f"{found.collect_h:.1f} h",
        "sealed": f"{found.sealed_files / 1e6:.2f} million files, in {found.seal_h:.1f} h",
        "rows": f"{found.rows:,}",
        "page": f"{found.page_mb:.0f} MB",
    }


def lines() -> Iterator[str]:
    yield "Made by `python -m benchmarks.cluster_costs`; what is simulated is said in benchmarks/cluster_*.py.\n"
    yield f"1,000 GPUs, 50 versions, 2,000 kernels.\n\n{Plan()}\n\n{Assumptions()}\n"
    yield from table((name, columns(plan, Assumptions())) for name, plan in scenarios())
    yield "\nThe base with other seeds, and with kernels like those of other recorded runs:\n"
    others = [(f"seed {seed}", columns(BASE, Assumptions(), seed)) for seed in (0, 1, 2)]
    for run in ("h200-kernelbench", "h200-2.1.0-2.5.0-2.11.0"):
        others.append((run, columns(replace(BASE, figures=recorded(run)), Assumptions())))
    yield from table(others)
    yield "\nThe base, when one assumption is at either end of its range; times the base:\n"
    yield from table(sensitivity())
    yield "\nWhat shards leave, and what one process then does with it:\n"
    plans = {
        "base": BASE,
        "as it was": FORMER,
        "base, 10 launches": replace(BASE, blocks=10),
        "base, the baseline + 7": replace(BASE, others=7),
    }
    yield from table((name, record_cells(plan)) for name, plan in plans.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="a file for the tables, instead of printing them")
    options = parser.parse_args()
    text = "\n".join(lines()) + "\n"
    if options.write:
        options.write.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
