"""A kernel against the fastest SDPA backend of any environment of a finished run, as a table.

    python -m benchmarks.fastest RUN --kernel attention [--times cold]

By medians of a launch: each environment's times, the backend with the smallest median of all, and for each
environment the ratio to it (Hodges-Lehmann) with its 95% interval, where there are launches enough for one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

from harness.inside import protocol
from reports import model
from reports.evidence import Evidence, load_evidence
from reports.latency import Launch, group_launches
from reports.statistics import compare_launches

DEVICE, CONFIDENCE = "cuda", 0.95


def times_us(launches: list[Launch], mode: str) -> list[float]:
    return [time_us for launch in launches if (time_us := launch.time_us(mode)) is not None]


def table(evidence: Evidence, kernel: str, mode: str) -> list[str]:
    """Markdown: a row for each workload, times in microseconds. LookupError where the run has no such times."""
    groups = {
        key: times
        for key, launches in group_launches(evidence.launches).groups.items()
        if key[2] == DEVICE and (times := times_us(launches, mode))
    }
    measured = {key[0] for key in groups}
    environments = [name for name in evidence.run.environments if name in measured]
    workloads = list(dict.fromkeys(key[3] for key in groups if key[1] == kernel and key[4] == protocol.KERNEL))
    if not workloads:
        raise LookupError(f"no {mode} times of {kernel} on {DEVICE}")
    lines = [f"| workload | {kernel}, us | fastest backend | us | ratio to it (95%) |", "|---|---|---|---|---|"]
    for workload in sorted(workloads, key=lambda name: median(_own(groups, environments, kernel, name)[0])):
        own = _own(groups, environments, kernel, workload)
        backends = {
            key: times
            for key, times in groups.items()
            if (key[1], key[3]) == (kernel, workload) and key[4] != protocol.KERNEL
        }
        key, best = min(backends.items(), key=lambda item: median(item[1]))
        ratios = compare_launches([(best, times) for times in own], CONFIDENCE)
        told = ", ".join(
            f"{ratio.ratio:.3f}" + (f" ({ratio.low:.3f} to {ratio.high:.3f})" if ratio.low and ratio.high else "")
            for ratio in ratios
        )
        middles = ", ".join(f"{median(times):.4g}" for times in own)
        lines.append(f"| {workload} | {middles} | {key[4]} of {key[0]} | {median(best):.4g} | {told} |")
    return [f"environments: {', '.join(environments)}", "", *lines]


def _own(
    groups: dict[tuple[str, str, str, str, str], list[float]], environments: list[str], kernel: str, workload: str
) -> list[list[float]]:
    """The kernel's launches in each environment that has any."""
    keys = [(environment, kernel, DEVICE, workload, protocol.KERNEL) for environment in environments]
    return [groups[key] for key in keys if key in groups]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--times", choices=(model.COLD, model.HOT), default=model.HOT)
    options = parser.parse_args()
    try:
        print("\n".join(table(load_evidence(options.run), options.kernel, options.times)))
    except LookupError as error:
        print(f"fastest: {error}", file=sys.stderr)
        return 64
    return 0


if __name__ == "__main__":
    sys.exit(main())
