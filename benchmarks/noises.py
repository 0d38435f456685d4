"""Noise of launch medians, synthetic and recorded: tables of rows by blocks, this environment less the baseline.

Of records whole launches are drawn, so that rows keep the luck that they share. Synthetic noise has, where it is asked
for, luck that all rows of a launch share: a fifth of the variance, and which launch is slow. All in the logarithm.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from harness.run.extend import times_of
from harness.schema.storage import Run
from harness.stats.effects import Floats as Table

RECORDS = Path(__file__).parents[1] / "reports" / "records"
RECORDED = {  # folder or archive, and the smallest effect that counts on its device
    "H200": ("h200-2.1.0-2.5.0-2.11.0", 0.01),
    "H200, A/A control": ("h200-control.tar.xz", 0.01),
    "CPU": ("cpu-2.1.0-2.5.0", 0.05),
}
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


@cache
def recorded(name: str) -> list[Table]:
    """Of each environment its launches' log medians less their row's median: rows x launches."""
    with tempfile.TemporaryDirectory() as unpacked:
        folder = RECORDS / RECORDED[name][0]
        if folder.suffix == ".xz":
            with tarfile.open(folder) as archive:
                archive.extractall(unpacked, filter="data")
            folder = Path(unpacked)
        run = Run(folder)
        cells, times = run.load().cells, times_of(run.launches())
    first: dict[tuple[str, ...], str] = {}  # a reference counts once, with the first kernel that has it
    for environment, kernel, *target in times:
        first.setdefault((environment, *target), kernel)
    places = [place for place in times if place[4] == "kernel" or first[(place[0], *place[2:])] == place[1]]
    found = []
    for environment in dict.fromkeys(cell.environment for cell in cells):
        rows = [times[place] for place in places if place[0] == environment]
        blocks = sorted(set.intersection(*(set(row) for row in rows)))
        table = np.log([[row[block] for block in blocks] for row in rows])
        # What is taken off for the median makes launches look more alike than they are.
        found.append((table - np.median(table, axis=1, keepdims=True)) * np.sqrt(len(blocks) / (len(blocks) - 1)))
    return found


def drawn(name: str) -> Noise:
    def noise(generator: np.random.Generator, _rows: int, blocks: int, _shared: bool) -> Table:
        sides = recorded(name)
        table = sides[generator.integers(len(sides))]
        base, this = generator.integers(table.shape[1], size=(2, blocks))
        return table[:, this] - table[:, base]

    return noise
