"""How far the memory of calls differs by chance: the figures of a run that lists one environment twice.

    cp benchmarks/matrices/cpu-memory.yaml memory.yaml      # paths in it begin at the repository's root
    python -m harness matrix --matrix memory.yaml --device cpu --quick --launches 5 --explain never
    python -m benchmarks.memory RUN

For each target: the peaks of all launches of both replicas, and the ratio of their medians.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from harness.schema.storage import Run

MIB = 1 << 20


def peaks_mib(run: Run) -> dict[str, list[list[float]]]:
    """For each workload and target, the peaks of each environment's launches."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for launch in run.launches():
        for timing in launch.timings:
            if timing.memory is not None:
                row = found[f"{timing.workload}/{timing.target}"]
                row[launch.environment].append(timing.memory.peak_bytes / MIB)
    return {name: list(row.values()) for name, row in found.items()}


def figures(name: str, sides: list[list[float]]) -> dict[str, object]:
    every = [peak for side in sides for peak in side]
    one, other = map(median, sides)
    return {
        "row": name,
        "launches": len(every),
        "median_mib": round(median(every), 3),
        "spread_kib": round((max(every) - min(every)) * 1024),
        "spread": round((max(every) - min(every)) / median(every), 4),
        "ratio_of_medians": round(other / one, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    for name, sides in peaks_mib(Run(parser.parse_args().run)).items():
        print(json.dumps(figures(name, sides)))


if __name__ == "__main__":
    main()
