"""What gives other bits when it runs again on the same bytes: a property, beside right and wrong. Pure.

Sums whose order is not fixed (atomic additions, split-K) round otherwise each time. Every run of a trial is held
against the rule, so what is right here is right in each; only `deterministic: true` in matrix.yaml makes it a failure.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.model import Comparison, CorrectnessSide
from reports.render.durations import ABSENT


def described(side: CorrectnessSide) -> str:
    """Such as "other bits in 3 of 20 trials, at most 0.42 units apart"."""
    if side.status not in ("ok", "wrong") or not side.recipes:
        return ABSENT
    if not side.repeats_differ:
        return "the same in every trial that was run again"
    size = ""
    if side.repeats_max_units is not None:
        size = f", at most {side.repeats_max_units:.3g} units apart"
    elif side.repeats_max_abs is not None:
        size = f", at most {side.repeats_max_abs:.3g} apart"
    return f"other bits in {side.repeats_differ} of {sum(recipe.trials for recipe in side.recipes)} trials{size}"


def unrepeatable(rows: Sequence[Comparison]) -> list[str]:
    """A sentence for each target on a device, kernels first as the rows are."""
    found: dict[tuple[str, str, str], dict[tuple[str, str], CorrectnessSide]] = {}
    for row in rows:
        for side in (row.correctness.baseline, row.correctness.this):
            if side.repeats_differ:
                sides = found.setdefault((row.kind, row.target, row.device), {})
                sides[row.workload, side.environment] = side
    return [_sentence(kind, target, device, sides) for (kind, target, device), sides in found.items()]


def _sentence(kind: str, target: str, device: str, sides: dict[tuple[str, str], CorrectnessSide]) -> str:
    """Of all places the one with the largest difference speaks."""
    (workload, environment), side = max(
        sides.items(), key=lambda item: (item[1].repeats_max_units or 0.0, item[1].repeats_differ)
    )
    more = f", and in {len(sides) - 1} more places" if len(sides) > 1 else ""
    within = "every output within the rule" if all(side.status == "ok" for side in sides.values()) else "not all right"
    name = f"reference {target}" if kind == "reference" else target
    return f"{name} ({device}) is not bit-repeatable: {described(side)} ({workload} in {environment}{more}); {within}"
