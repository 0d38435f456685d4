"""`python -m benchmarks.history`: how often the history finds a step that is none, and one that is there.

Series of times with normal noise of 1%, and with noise of heavy tails (Student's t of 3 degrees). Prints a table.
"""

from __future__ import annotations

import sys

import numpy as np

from reports.history.steps import find_steps

NOISE, SERIES, STEPPED = 0.01, 6000, 400
RUNS = (8, 10, 12, 15, 20, 30, 60, 150)
STEPS = (0.03, 0.05, 0.10)


def main() -> int:
    random = np.random.default_rng(18)
    sizes = " | ".join(f"{size:.0%} found" for size in STEPS)
    print(f"| runs | false, normal noise | false, heavy tails | {sizes} |")
    print("|---" * (3 + len(STEPS)) + "|")
    for runs in RUNS:
        normal = sum(bool(find_steps(np.exp(NOISE * random.standard_normal(runs)))) for _ in range(SERIES))
        heavy = sum(bool(find_steps(np.exp(NOISE * random.standard_t(3, runs)))) for _ in range(SERIES))
        found = []
        for size in STEPS:
            hits = 0
            for _ in range(STEPPED):
                at = int(random.integers(max(2, runs // 10), runs - max(2, runs // 10) + 1))
                times = np.exp(NOISE * random.standard_normal(runs))
                times[at:] *= 1 + size
                hits += any(abs(step.at - at) <= 1 for step in find_steps(times))
            found.append(f"{hits / STEPPED:.0%}")
        per_thousand = (f"{count / SERIES * 1000:.1f} in 1,000" for count in (normal, heavy))
        print(f"| {runs} | {' | '.join(per_thousand)} | {' | '.join(found)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
