"""Noise of launch medians, synthetic and recorded: tables of rows by blocks, this environment less the baseline.

    python -m benchmarks.noises NAME RUN      stores the launch medians of a run under one of the names below

Recorded noise is drawn by whole launches, so that rows keep the luck that they share. Synthetic noise can have luck
that all rows of a launch share: a fifth of the variance, and which launch is slow. All in the logarithm.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from harness.run.extend import times_of
from harness.schema.storage import Run
from harness.stats.effects import Floats as Table

MEDIANS = Path(__file__).with_name("launch_medians.json")  # name, environment: rows of launch medians, us
RECORDED = {"H200": 0.01, "H200, A/A control": 0.01, "CPU": 0.05}  # the smallest effect that counts on the device
SLOW_LAUNCH, SLOW_SHARE = np.log(1.08), 0.1
Noise = Callable[[np.random.Generator, int, int, bool], Table]


def _normal(generator: np.random.Generator, spread: float, rows: int, blocks: int, shared: bool) -> Table:
    own = generator.normal(0, 1, (rows, blocks))
    together = generator.normal(0, 1, (1, blocks))
    return spread * (np.sqrt(0.8) * own + np.sqrt(0.2) * together if shared else own)


def _slow(generator: np.random.Generator, rows: int, blocks: int, shared: bool) -> Table:
    return SLOW_LAUNCH * (generator.random((1 if shared else rows, blocks)) < SLOW_SHARE)


def _heavy(generator: np.random.Generator, spread: float, rows: int, blocks: int, shared: bool) -> Table:
    """Student's t with 3 degrees of freedom, scaled to this standard deviation."""
    own, together = (generator.standard_t(3, shape) for shape in ((rows, blocks), (1, blocks)))
    return spread / np.sqrt(3) * (np.sqrt(0.8) * own + np.sqrt(0.2) * together if shared else own)


def _of(one: Callable[..., Table], two: Callable[..., Table]) -> Noise:
    return lambda generator, rows, blocks, shared: (
        two(generator, rows, blocks, shared) - one(generator, rows, blocks, shared)
    )


def _plain(spread: float, slow: bool = False) -> Callable[..., Table]:
    def side(generator: np.random.Generator, rows: int, blocks: int, shared: bool) -> Table:
        times = _normal(generator, spread, rows, blocks, shared)
        return times + _slow(generator, rows, blocks, shared) if slow else times

    return side


def _drifting(generator: np.random.Generator, rows: int, blocks: int, shared: bool) -> Table:
    """Both sides get slower by 5% through ten blocks; the one that is launched later in a block by half a block."""
    times = _normal(generator, 0.009 * np.sqrt(2), rows, blocks, shared)
    return times + 0.005 / 2 * generator.choice([-1, 1], (1, blocks))


def _unalike(generator: np.random.Generator, rows: int, blocks: int, shared: bool) -> Table:
    """Rows whose spreads differ by a factor of e, up or down: as those of a GPU do."""
    spreads = 0.009 * np.exp(generator.normal(0, 1, (rows, 1)))
    return spreads * _normal(generator, np.sqrt(2), rows, blocks, shared)


def _heavy_side(generator: np.random.Generator, rows: int, blocks: int, shared: bool) -> Table:
    return _heavy(generator, 0.009, rows, blocks, shared)


SYNTHETIC: dict[str, Noise] = {
    "0.3%": _of(_plain(0.003), _plain(0.003)),
    "0.9%": _of(_plain(0.009), _plain(0.009)),
    "3%": _of(_plain(0.03), _plain(0.03)),
    "0.9%, drifting by 5%": _drifting,
    "0.9%, one launch in ten 8% slower": _of(_plain(0.009, True), _plain(0.009, True)),
    "the same on one side": _of(_plain(0.009), _plain(0.009, True)),
    "0.3%, slow launches on one side": _of(_plain(0.003), _plain(0.003, True)),
    "0.9%, heavy tails (t, 3 degrees)": _of(_heavy_side, _heavy_side),
    "0.3% against 3%": _of(_plain(0.003), _plain(0.03)),
    "0.9%, rows unalike": _unalike,
}


def launch_medians_us(run: Run) -> dict[str, list[list[float]]]:
    """The medians of each environment: rows x launches. A reference counts once, with the first kernel that has it."""
    cells, times = run.load().cells, times_of(run.launches())
    first: dict[tuple[str, ...], str] = {}
    for environment, kernel, *target in times:
        first.setdefault((environment, *target), kernel)
    kept = [key for key in times if key[4] == "kernel" or first[(key[0], *key[2:])] == key[1]]
    medians = {}
    for environment in dict.fromkeys(cell.environment for cell in cells):
        rows = [times[key] for key in kept if key[0] == environment]
        blocks = sorted(set.intersection(*(set(row) for row in rows)))
        medians[environment] = [[round(row[block], 6) for block in blocks] for row in rows]
    return medians


@cache
def recorded(name: str) -> list[Table]:
    """For each environment, the log medians of its launches less their row's median: rows x launches."""
    tables = [np.log(rows) for rows in json.loads(MEDIANS.read_text(encoding="utf-8"))[name].values()]
    # Subtracting the median makes launches look more alike than they are.
    return [
        (table - np.median(table, axis=1, keepdims=True)) * np.sqrt(table.shape[1] / (table.shape[1] - 1))
        for table in tables
    ]


def drawn(name: str) -> Noise:
    def noise(generator: np.random.Generator, _rows: int, blocks: int, _shared: bool) -> Table:
        sides = recorded(name)
        table = sides[generator.integers(len(sides))]
        base, this = generator.integers(table.shape[1], size=(2, blocks))
        return table[:, this] - table[:, base]

    return noise


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=RECORDED)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    options = parser.parse_args()
    stored = json.loads(MEDIANS.read_text(encoding="utf-8")) if MEDIANS.is_file() else {}
    stored[options.name] = launch_medians_us(Run(options.run))
    lines = json.dumps(stored, indent=1).replace(",\n    ", ", ").replace("[\n    ", "[").replace("\n   ]", "]")
    MEDIANS.write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
