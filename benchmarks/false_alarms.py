"""A/A: how often the test of environments calls a change between two replicas of one environment.

    python -m benchmarks.false_alarms RUN [--launches 10]

RUN is a run with an environment that stands twice in matrix.yaml (`replica: 1`), such as one of
`benchmarks/matrices/h200-control.yaml`. A trial is a disjoint group of launches, judged by the procedure that judges a
run. Trials share no launch; rows of one trial share its launches, so the interval over rows is too narrow.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from harness.worker import protocol
from reports import model
from reports.compare import latency
from reports.compare.correctness import pass_interval
from reports.compare.decisions import decide_all
from reports.load.evidence import Evidence, load_evidence, same_stack
from reports.model import LatencySide

CALLED = (model.REGRESSED, model.IMPROVED, model.ABOUT)
Pair = tuple[LatencySide, LatencySide, float]


def pairs_of(evidence: Evidence, one: str, two: str) -> list[Pair]:
    """Return every kernel and every reference in both replicas, cold and hot, with its smallest effect."""
    pairs: list[Pair] = []
    seen = set()
    for cell in evidence.run.cells:
        if cell.environment != one:
            continue
        for target in (protocol.KERNEL, *evidence.references(cell.kernel, cell.device)):
            name = cell.kernel if target == protocol.KERNEL else target
            if (name, cell.workload, cell.device) in seen:
                continue  # a reference that several kernels are compared with counts once
            seen.add((name, cell.workload, cell.device))
            other = replace(cell, environment=two)
            for mode in latency.modes(cell.device):
                base, this = (latency.side(evidence, each, target, mode) for each in (cell, other))
                if base.status == this.status == "ok":
                    pairs.append((base, this, evidence.min_effect(cell.device)))
    return pairs


def within(side: LatencySide, blocks: set[int]) -> LatencySide:
    """Return a side with the launches of these blocks only."""
    kept = [(block, us) for block, us in zip(side.blocks, side.medians_us, strict=True) if block in blocks]
    return replace(side, blocks=[block for block, _ in kept], medians_us=[us for _, us in kept])


def trials(pairs: list[Pair], launches: int) -> list[set[int]]:
    """Return disjoint groups of blocks, in measured order; blocks left over make none."""
    blocks = sorted({block for base, this, _ in pairs for block in set(base.blocks) & set(this.blocks)})
    return [set(blocks[start : start + launches]) for start in range(0, len(blocks) - launches + 1, launches)]


def judge(evidence: Evidence, pairs: list[Pair], blocks: set[int]) -> tuple[int, int]:
    """Return how many rows a trial judges, and how many of them it calls a change."""
    cut = [
        latency.compare_times(evidence, within(base, blocks), within(this, blocks), least)
        for base, this, least in pairs
    ]
    found = decide_all(evidence, cut)
    judged = [each for each in found if each.ratio is not None]
    return len(judged), sum(each.verdict in CALLED for each in judged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--launches", type=int, default=10, help="of each replica in a trial")
    options = parser.parse_args()
    evidence = load_evidence(options.run)
    for one, two in combinations(evidence.run.environments, 2):
        if not same_stack(evidence.environments.get(one), evidence.environments.get(two)):
            continue
        pairs = pairs_of(evidence, one, two)
        results = [judge(evidence, pairs, blocks) for blocks in trials(pairs, options.launches)]
        rows, called = (sum(counts) for counts in zip(*results, strict=True)) if results else (0, 0)
        low, high = pass_interval(called, rows, 0.95) if rows else (0.0, 1.0)
        print(f"{one} against {two}: {len(results)} trials of {options.launches} launches; {called} of {rows} rows")
        print(
            f"called a change (95% interval {low:.2%} to {high:.2%}); {sum(c > 0 for _, c in results)} trials with any"
        )


if __name__ == "__main__":
    main()
