"""What a workload's trials could see: five known wrong answers, each laid before the very rule that judges the kernel.

They are made of the truth of a recipe's first trial. What is not seen stands in the record; where zeros or an input
itself pass, the workload decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Iterator, NamedTuple, Sequence, Tuple

import numpy as np

from . import agreement, dtypes, rounding, wire
from .truth import Exact

if TYPE_CHECKING:
    from .dtypes import Array
    from .judging import TargetOutput
    from .subjects import WorkloadTrial

    Alike = Sequence[Tuple[str, Array]]  # inputs of the output's shape and dtype, by name

SCALED, ROW = 0.003, 0.01  # shares
# Kinds whose passing makes a workload undecidable.
TRIVIAL = ("zeros", "input")


class DecidingRule(NamedTuple):
    limits: dict[str, float]
    decides: str
    precision: list[str]


def prove(trial: WorkloadTrial, rule: DecidingRule, instead: TargetOutput | None = None) -> list[wire.KnownWrong]:
    """Return for each known wrong answer whether the rule sees it.

    Where there is no truth the answers are made of the output `instead`; else there are none.
    """
    workload = trial.workload
    exact = {name: trial.truth(rule.precision, name) for name in workload.parts}
    known = {name: own for name, own in exact.items() if own is not None}
    if len(known) < len(exact):
        return [] if instead is None else _prove_without_truth(instead, workload.alike(trial.arrays), rule)

    found = []
    for name, own in known.items():
        if name and not own.values.any():
            continue  # of a gradient that is zero, such as that of one key, zeros are right
        for mutant in mutants(own, workload.alike(trial.arrays, name)):
            found.append(judge_mutant(mutant, own, rule, f"{name}: " if name else ""))
    return found


def _prove_without_truth(instead: TargetOutput, alike: Alike, rule: DecidingRule) -> list[wire.KnownWrong]:
    values = instead.values.astype(np.float64)
    ruler = rounding.Ruler(values, instead.dtype)
    exact = Exact(values, "", rounding.ErrorScale(*rounding.measure([values], ruler), ruler))
    rule = rule._replace(decides="kernelbench" if rule.decides == "rounding" else rule.decides)
    return [judge_mutant(mutant, exact, rule) for mutant in mutants(exact, alike)]


class Mutant(NamedTuple):
    """A known wrong answer, not yet rounded."""

    kind: str
    name: str
    values: Array


def mutants(exact: Exact, alike: Alike) -> Iterator[Mutant]:
    """Yield known wrong answers of any output."""
    right, ruler = exact.values, exact.error_scale.ruler
    yield Mutant("zeros", "zeros", np.zeros_like(right))
    for name, values in alike:
        yield Mutant("input", f"its input {name}", values)
    if not right.size:
        return
    row = _middle(ruler.row_l2)
    changed = np.array(right)
    rounding.as_rows(changed)[row, _middle(np.abs(ruler.rows[row]))] = 0.0
    yield Mutant("stale", "one element left zero", changed)
    if ruler.dtype in dtypes.UNIT_ROUNDOFF:
        yield Mutant("scaled", f"outputs {SCALED:.1%} too large", right * (1 + SCALED))
        changed = np.array(right)
        rounding.as_rows(changed)[row] *= 1 + ROW
        yield Mutant("row", f"one row {ROW:.0%} too large", changed)


def judge_mutant(mutant: Mutant, exact: Exact, rule: DecidingRule, output: str = "") -> wire.KnownWrong:
    """Return what the rule says of a known wrong answer, once it is rounded to the output's dtype."""
    ruler = exact.error_scale.ruler
    values = np.asarray(mutant.values, np.float64).reshape(exact.values.shape)
    values = ruler.rounded(values) if ruler.dtype in dtypes.UNIT_ROUNDOFF else values
    found = agreement.compare(values, exact.values, rule.limits, exact.error_scale)
    norms = found.norms or {}
    norm = max(norms, key=lambda name: norms[name], default="")
    seen = not found.passed[rule.decides]
    return wire.KnownWrong(mutant.kind, output + mutant.name, seen, norm, norms.get(norm))


def _middle(sizes: Array) -> int:
    """Return the place of the median."""
    return int(np.argsort(sizes, kind="stable")[len(sizes) // 2])


def undecidable(power: Iterable[wire.KnownWrong]) -> str:
    """Return why the trials decide nothing; empty where they do."""
    passing = [wrong.name for wrong in power if wrong.kind in TRIVIAL and not wrong.seen]
    return f"{' and '.join(passing)} would pass here: it decides nothing" if passing else ""
