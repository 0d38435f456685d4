"""A kernel against the fastest SDPA backend of any environment of a finished run, as a table.

    python -m benchmarks.fastest RUN --kernel attention [--times cold]

By medians of a launch: the kernel's in each environment, the reference with the smallest of all, and for each
environment the ratio to it with its interval (`harness.stats.effects`), over the blocks that both were launched in.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from harness.errors import BAD_INPUT, InputError
from harness.schema.run_records import Cell
from harness.stats.effects import Estimate, compare_launches
from harness.worker import protocol
from reports import model
from reports.compare.latency import side
from reports.load.evidence import Evidence, load_evidence
from reports.model import LatencySide, shared_blocks

DEVICE = "cuda"


def table(evidence: Evidence, kernel: str, mode: str) -> list[str]:
    """Markdown: a row for each workload, times in microseconds. InputError where the run has no such times."""
    lines = []
    for workload in evidence.run.workloads:
        own = _timed(evidence, kernel, workload.id, (protocol.KERNEL,), mode)
        names = sorted({key[4] for key in evidence.launches} - {protocol.KERNEL})
        references = _timed(evidence, kernel, workload.id, names, mode)
        if not own or not references:
            continue
        name, best = min(references, key=lambda each: each[1].median_us or math.inf)
        ratios = compare_launches([shared_blocks(best, each) for _, each in own], evidence.confidence)
        told = "; ".join(f"{each.environment}: {each.median_us:.4g}" for _, each in own)
        lines.append(
            f"| {workload.id} | {told} | {name} of {best.environment}: {best.median_us:.4g} | "
            f"{', '.join(map(_shown, ratios))} |"
        )
    if not lines:
        raise InputError(f"no {mode} times of {kernel} and of references beside it on {DEVICE}")
    head = f"| workload | {kernel}, us | fastest reference, us | ratio to it ({evidence.confidence:.0%}) |"
    return [head, "|---|---|---|---|", *lines]


def _timed(
    evidence: Evidence, kernel: str, workload: str, targets: list[str] | tuple[str, ...], mode: str
) -> list[tuple[str, LatencySide]]:
    """Each target with its times in each environment that has any, in the run's order of environments."""
    found = [
        (target, side(evidence, cell, target, mode))
        for environment in evidence.run.environments
        for cell in [Cell(environment=environment, kernel=kernel, workload=workload, device=DEVICE)]
        for target in targets
    ]
    return [(target, each) for target, each in found if each.medians_us]


def _shown(ratio: Estimate) -> str:
    interval = "" if ratio.low is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"{ratio.ratio:.3f}{interval}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--times", choices=(model.COLD, model.HOT), default=model.HOT)
    options = parser.parse_args()
    try:
        print("\n".join(table(load_evidence(options.run), options.kernel, options.times)))
    except InputError as error:
        print(f"fastest: {error}", file=sys.stderr)
        return BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
