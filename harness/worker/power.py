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

if TYPE_CHECKING:
    from .dtypes import Array
    from .workload import Workload

    Alike = Sequence[Tuple[str, Array]]  # inputs of the output's shape and dtype, by name
    Instead = Tuple[Array, str]  # what all are held against where there is no truth, and its dtype

VERSION = 2
SCALED, ADDED, ROW = (0.001, 0.003, 0.01), 0.001, 0.01  # shares
# Kinds whose passing makes a workload undecidable.
TRIVIAL = ("zeros", "input")


class Wrong(NamedTuple):
    """A known wrong answer, not yet rounded. Kinds that come in sizes have one."""

    kind: str
    name: str
    values: Array
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
    """Return for each known wrong answer whether the rule sees it. Where there is no truth they are made of `instead`,
    of the first trial; else there are none."""
    first = workloads.Trial(workload, recipe, 0, seed, cache)
    arrays, exact = first.arrays, {name: first.truth(rule.precision, name) for name in workload.parts}
    known = {name: own for name, own in exact.items() if own is not None}
    if len(known) < len(exact):
        return [] if instead is None else _without_truth(instead, workload.alike(arrays), rule)

    def prove_all() -> list[dict[str, Any]]:
        emulated = workload.emulated(arrays, rule.precision)
        proofs = {name: Prover(own, emulated[name], rule, name) for name, own in known.items()}
        # Another answer, which a kernel could have left in memory.
        other = workloads.Trial(workload, recipe, 1, seed, cache) if trials > 1 else None
        found = []
        for name, proof in proofs.items():
            if name and not known[name].values.any():
                continue  # of a gradient that is zero, such as that of one key, zeros are right
            before = other and other.truth(rule.precision, name)
            wrongs = mutants(proof, workload.alike(arrays, name), before.values if before else None)
            found += [proof.about(wrong) for wrong in wrongs]
        for kind, fault, values in workload.mutants(arrays):
            for name, proof in proofs.items():
                if proof.differs(values[name]):  # on some inputs it is no fault
                    found.append(proof.about(Wrong(kind, fault, proof.right + (values[name] - proof.exact.values))))
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
    return [proof.about(wrong) for wrong in mutants(proof, alike, None)]


class Prover:
    """The rule, and what wrong answers are made of."""

    def __init__(self, exact: truth.Exact, emulated: Array, rule: Rule, output: str = "") -> None:
        self.of = f"{output}: " if output else ""
        self.exact, self.limits, self.decides = exact, rule.limits, rule.decides
        self.ruler = exact.error_scale.ruler
        self.floats = self.ruler.dtype in dtypes.UNIT_ROUNDOFF
        with np.errstate(invalid="ignore", over="ignore"):
            moved = emulated - self._rounded(exact.values)
        # The answer before its last rounding: the truth, and what arithmetic had added to it when it was rounded.
        self.right = np.array(exact.values + np.where(np.isfinite(moved), moved, 0.0))

    def _rounded(self, values: Array) -> Array:
        return self.ruler.rounded(values) if self.floats else values

    def differs(self, values: Array) -> bool:
        """Return whether values are not the truth's."""
        return not np.allclose(values, self.exact.values, rtol=1e-9, atol=1e-12, equal_nan=True)

    def about(self, wrong: Wrong) -> wire.KnownWrong:
        """Return what the rule says of a wrong answer."""
        values = self._rounded(np.asarray(wrong.values, np.float64)).reshape(self.exact.values.shape)
        if self.decides == "rounding" and self.ruler.plain and np.isfinite(values).all():
            units = self.exact.error_scale.units(self.ruler.norms(values))
            seen = not max(units.values()) <= self.limits["rounding"]
        else:
            found = agreement.compare(values, self.exact.values, self.limits, self.exact.error_scale)
            units, seen = found.norms or {}, not found.passed[self.decides]
        norm = max(units, key=lambda name: units[name], default="")
        return wire.KnownWrong(wrong.kind, self.of + wrong.name, wrong.size, bool(seen), norm, units.get(norm))


def mutants(proof: Prover, alike: Alike, before: Array | None) -> Iterator[Wrong]:
    """Yield known wrong answers of any output. `before`: another trial's truth, if there is one."""
    right = proof.right
    yield Wrong("zeros", "zeros", np.zeros_like(right))
    for name, values in alike:
        yield Wrong("input", f"its input {name}", values)
    if not right.size:
        return
    if before is not None:
        yield Wrong("previous", "the previous trial's answer", before)
    stale = rounding.as_rows(before if before is not None else np.zeros_like(right))
    row = _middle(proof.ruler.row_l2)
    column = _middle(np.abs(stale[row] - proof.ruler.rows[row]))
    for what, columns in (("element", slice(column, column + 1)), ("row", slice(None))):
        changed = np.array(right)
        rounding.as_rows(changed)[row, columns] = stale[row, columns]
        yield Wrong("stale", f"one stale {what}", changed)
    if not proof.floats:
        return
    for share in SCALED:
        yield Wrong("scaled", f"outputs {share:.1%} too large", right * (1 + share), share)
    yield Wrong("added", f"{ADDED:.1%} of the root mean square added", right + ADDED * proof.ruler.rms, ADDED)
    changed = np.array(right)
    rounding.as_rows(changed)[row] *= 1 + ROW
    yield Wrong("row", f"one row {ROW:.0%} too large", changed, ROW)


def _middle(sizes: Array) -> int:
    """Return the place of the median."""
    return int(np.argsort(sizes, kind="stable")[len(sizes) // 2])


def undecidable(power: Iterable[wire.KnownWrong]) -> str:
    """Return why the trials decide nothing; empty where they do."""
    passing = [wrong.name for wrong in power if wrong.kind in TRIVIAL and not wrong.seen]
    return f"{' and '.join(passing)} would pass here: it decides nothing" if passing else ""
