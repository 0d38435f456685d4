"""What the rule would let pass: known wrong answers, each laid before the very rule that judges the kernel.

On one trial of a recipe. A wrong answer is the truth, changed, with the errors of emulated arithmetic and rounded to
the dtype, as a kernel with that fault would give it. What is not seen stands in the record; where zeros or an input
itself pass, the workload decides nothing.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Iterable, Iterator, NamedTuple, Sequence, Tuple

import numpy as np

from . import agreement, codec, dtypes, protocol, rounding, truth, wire
from . import workload as workloads
from .rounding import Norms, block_of

if TYPE_CHECKING:
    from .dtypes import Array
    from .faulty import WrongAnswer
    from .rounding import Block
    from .workload import Workload

    Alike = Sequence[Tuple[str, Array]]  # inputs of the output's shape and dtype, by name
    Instead = Tuple[Array, str]  # what all are held against where there is no truth, and its dtype

VERSION = 1
TILE = 16
SCALED, ADDED, ROW = (0.001, 0.003, 0.01), (0.001, 0.01), 0.01  # shares
# Kinds whose passing makes a workload undecidable.
TRIVIAL = ("zeros", "input")


class Wrong(NamedTuple):
    """A known wrong answer. `block` gives it for a slice of rows and one of columns of `rounding.as_rows`, not yet
    rounded. Kinds that come in sizes have one."""

    kind: str
    name: str
    block: Block
    size: float | None = None


class Rule(NamedTuple):
    limits: dict[str, float]
    decides: str
    precision: list[str]


def prove(
    workload: Workload,
    recipe: str,
    trials: int,
    seed: int,
    cache: truth.Cache,
    rule: Rule,
    instead: Instead | None = None,
) -> list[wire.KnownWrong]:
    """For each known wrong answer whether the rule sees it. Where there is no truth they are made of `instead`, of the
    first trial; else there are none."""
    first = workloads.Trial(workload, recipe, 0, seed, cache)
    arrays, exact = first.arrays, {name: first.truth(rule.precision, name) for name in workload.parts}
    known = {name: own for name, own in exact.items() if own is not None}
    if len(known) < len(exact):
        return [] if instead is None else _without_truth(instead, workload.alike(arrays), rule)

    def prove_all() -> list[dict[str, Any]]:
        emulated = workload.split(workload.emulated(arrays, rule.precision))
        proofs = {name: Prover(own, emulated[name], rule, name) for name, own in known.items()}
        # Another answer, which a kernel could have left in memory.
        other = workloads.Trial(workload, recipe, 1, seed, cache) if trials > 1 else None
        found = []
        for name, proof in proofs.items():
            if name and not known[name].values.any():
                continue  # of a gradient that is zero, such as that of one key, zeros are right
            before = other and other.truth(rule.precision, name)
            wrongs = general(proof, workload.alike(arrays, name), before.values if before else None)
            found += [proof.about(wrong) for wrong in wrongs]
        for answer in workload.wrong_answers(arrays, cache.each):
            proof = proofs[answer.output]
            found += [proof.about(wrong) for wrong in specific(proof, answer)]
        return [dataclasses.asdict(each) for each in found]

    key = protocol.digest([VERSION, *(own.sha256 for own in known.values()), first.sha256, list(rule), trials > 1])
    return [codec.checked(wire.KnownWrong, each, "known") for each in cache.note(f"{key[:2]}/{key}.power", prove_all)]


def _without_truth(instead: Instead, alike: Alike, rule: Rule) -> list[wire.KnownWrong]:
    values, dtype = instead
    values = values.astype(np.float64)
    ruler = rounding.Ruler(values, dtype)
    exact = truth.Exact(values, "", rounding.ErrorScale(*rounding.measure([values], ruler), ruler))
    decides = "kernelbench" if rule.decides == "rounding" else rule.decides
    proof = Prover(exact, values, rule._replace(decides=decides))
    return [proof.about(wrong) for wrong in general(proof, alike, None)]


class Prover:
    """The rule, and what wrong answers are made of."""

    def __init__(self, exact: truth.Exact, emulated: Array, rule: Rule, output: str = "") -> None:
        self.of = f"{output}: " if output else ""
        self.exact, self.limits, self.decides = exact, rule.limits, rule.decides
        self.ruler = exact.error_scale.ruler
        self.rows = self.ruler.rows
        self.emulated = rounding.as_rows(emulated)
        self.floats = self.ruler.dtype in dtypes.UNIT_ROUNDOFF
        sizes = np.where(self.ruler.row_l2 > 0, self.ruler.row_l2, np.inf)
        self.row = _middle(sizes) if len(sizes) else 0  # of median size
        self.light = rule.decides == "rounding" and self.ruler.plain and bool(np.isfinite(self.emulated).all())

    def right(self, rows: slice, columns: slice) -> Array:
        """The answer before its last rounding: the truth, and what arithmetic had added to it when it was rounded."""
        want = self.rows[rows, columns]
        with np.errstate(invalid="ignore", over="ignore"):
            moved = self.emulated[rows, columns] - self._rounded(want)
        return want + np.where(np.isfinite(moved), moved, 0.0)

    def _rounded(self, values: Array) -> Array:
        return self.ruler.rounded(values) if self.floats else values

    def about(self, wrong: Wrong) -> wire.KnownWrong:
        def block(rows: slice, columns: slice) -> Array:
            return self._rounded(wrong.block(rows, columns))

        if self.light:
            units = self.exact.error_scale.units(self.ruler.norms(block, self._enough()))
            seen = not max(units.values()) <= self.limits["rounding"]
        else:
            values = np.empty(self.rows.shape)
            for rows, columns in rounding.blocks(self.rows.shape):
                values[rows, columns] = block(rows, columns)
            values = values.reshape(self.exact.values.shape)
            found = agreement.compare(values, self.exact.values, self.limits, self.exact.error_scale)
            units, seen = found.norms or {}, not found.passed[self.decides]
        norm = max(units, key=lambda name: units[name], default="")
        return wire.KnownWrong(wrong.kind, self.of + wrong.name, wrong.size, bool(seen), norm, units.get(norm))

    def _enough(self) -> Norms:
        return {name: self.limits["rounding"] * cost for name, cost in self.exact.error_scale.costs.items()}


def general(proof: Prover, alike: Alike, before: Array | None) -> Iterator[Wrong]:
    """Of any output. `before`: another trial's truth, if there is one."""
    right, rows = proof.right, proof.rows
    yield Wrong("zeros", "zeros", lambda r, c: np.zeros_like(rows[r, c]))
    for name, values in alike:
        yield Wrong("input", f"its input {name}", block_of(values))
    if not rows.size:
        return
    if before is not None:
        yield Wrong("previous", "the previous trial's answer", block_of(before))
    values = proof.exact.values
    for axis, name in ((-1, "last"), (0, "first")):
        if values.ndim and values.shape[axis] > 1 and (axis == -1 or values.ndim > 1):
            mean = np.broadcast_to(values.mean(axis=axis, keepdims=True), values.shape)
            yield Wrong("mean", f"the mean over its {name} axis", block_of(mean))
    stale = rounding.as_rows(before) if before is not None else np.broadcast_to(0.0, rows.shape)
    row, column = proof.row, _middle(np.abs(stale[proof.row] - rows[proof.row]))
    yield Wrong("stale", "one stale element", _patched(right, stale, (row, row + 1), (column, column + 1)))
    yield Wrong("stale", "one stale row", _patched(right, stale, (row, row + 1), (0, rows.shape[1])))
    top, left = row - row % TILE, column - column % TILE
    tile = _patched(right, stale, (top, top + TILE), (left, left + TILE))
    yield Wrong("stale", f"one stale tile of {TILE} by {TILE}", tile)
    if not proof.floats:
        return
    for share in SCALED:
        yield Wrong("scaled", f"outputs {share:.1%} too large", _changed(right, factor=1 + share), share)
    for share in ADDED:
        constant = share * proof.ruler.rms
        name = f"{share:.1%} of the root mean square added"
        yield Wrong("added", name, _changed(right, more=constant), share)
    larger = _patched(right, None, (row, row + 1), (0, rows.shape[1]), 1 + ROW)
    yield Wrong("row", f"one row {ROW:.0%} too large", larger, ROW)


def specific(proof: Prover, answer: WrongAnswer) -> Iterator[Wrong]:
    """Of this computation: values in place of the truth, where it is changed at all."""
    kind, name, size, values, _ = answer
    values = rounding.as_rows(values)
    if kind == "one row":
        changed = np.flatnonzero((values != proof.rows).any(axis=1))
        if not len(changed):
            return
        moved = np.linalg.norm(values[changed] - proof.rows[changed], axis=1) / proof.ruler.row_l2[changed]
        yield Wrong("short", name, _instead(proof, values, int(changed[_middle(moved)])), size)
    else:
        yield Wrong(kind, name, _instead(proof, values), size)


def _instead(proof: Prover, values: Array, row: int | None = None) -> Block:
    """Another truth, with the errors of arithmetic; in one row alone, or in all."""

    def block(rows: slice, columns: slice) -> Array:
        found = proof.right(rows, columns)
        change = values[rows, columns] - proof.rows[rows, columns]
        if row is None:
            found += change
            return found
        if rows.start <= row < rows.stop:
            found[row - rows.start] += change[row - rows.start]
        return found

    return block


def _changed(right: Block, factor: float = 1.0, more: float = 0.0) -> Block:
    return lambda rows, columns: right(rows, columns) * factor + more


def _patched(
    right: Block, stale: Array | None, tall: tuple[int, int], wide: tuple[int, int], factor: float = 1.0
) -> Block:
    """The right answer, but for a rectangle: taken from another answer, or else larger by a factor."""

    def block(rows: slice, columns: slice) -> Array:
        found = right(rows, columns)
        above, below = (min(max(at - rows.start, 0), len(found)) for at in tall)
        left, end = (min(max(at - columns.start, 0), found.shape[1]) for at in wide)
        if stale is None:
            found[above:below, left:end] *= factor
        else:
            found[above:below, left:end] = stale[rows, columns][above:below, left:end]
        return found

    return block


def _middle(sizes: Array) -> int:
    """The place of the median."""
    return int(np.argsort(sizes, kind="stable")[len(sizes) // 2])


def undecidable(power: Iterable[wire.KnownWrong]) -> str:
    """Why the trials decide nothing; empty where they do."""
    passing = [wrong.name for wrong in power if wrong.kind in TRIVIAL and not wrong.seen]
    return f"{' and '.join(passing)} would pass here: it decides nothing" if passing else ""
