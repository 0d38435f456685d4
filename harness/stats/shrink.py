"""Find the smallest sizes of the inputs at which a kernel still fails. Pure: `shrink` says which sizes to try next.

It is the shrinker of property-based tests: from the smallest failure so far it tries a smaller size in each dimension,
and goes on from whatever still fails. Failures need not be monotonic, so what it finds is the smallest failure that was
tried, and no proof that everything smaller is correct.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.schema.experiment_records import ConditionResult
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol
from harness.worker.protocol import FailureKind

LENGTH, HEAD_DIM = "seq_len", "head_dim"
DIMENSIONS = ("batch", "heads", LENGTH, HEAD_DIM)
SHRUNK = ("batch", "heads", LENGTH)  # a kernel may be made for its head dimension
STEPS, MOST_TRIED, MOST_ROUNDS, MOST_A_ROUND = 5, 16, 6, 4
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Point:
    """One input that was tried."""

    sizes: Sizes
    right: bool | None  # None: it was refused, or could not be judged
    crashed: bool = False  # which is not right either

    def varies(self, own: Sizes) -> list[str]:
        """Return the dimensions whose size is not the workload's."""
        return [name for name, size in own.items() if self.sizes[name] != size]


def smallest(points: Iterable[Point], own: Sizes) -> Sizes | None:
    """Return the sizes of the smallest input that failed; None where none did."""
    wrong = [each.sizes for each in points if each.right is False and HEAD_DIM not in each.varies(own)]
    return min(wrong, key=lambda sizes: (math.prod(sizes.values()), sizes[LENGTH]), default=None)


def shrink(points: Sequence[Point], own: Sizes) -> list[dict[str, int]]:
    """Return the sizes to try next: each is the smallest failure so far with one dimension made smaller."""
    least = smallest(points, own)
    if least is None:
        return []
    known = [dict(point.sizes) for point in points]
    candidates: list[dict[str, int]] = []
    for step in range(STEPS):  # the boldest of every dimension first
        for name in SHRUNK:
            candidate = {**least, name: _smaller(name, least[name], points)[step]}
            if 0 < candidate[name] < least[name] and candidate not in [*known, *candidates]:
                candidates.append(candidate)
    return candidates[:MOST_A_ROUND]


def _smaller(name: str, size: int, points: Sequence[Point]) -> list[int]:
    """Return sizes of a dimension to try: 1, after the first and last right size, half way, one less."""
    right = [each.sizes[name] for each in points if each.right and each.sizes[name] < size]
    first, last = min(right, default=0), max(right, default=0)
    return [1, first + 1, last + 1, (last + size) // 2, size - 1]


def own_sizes(workload: WorkloadInfo | None) -> dict[str, int]:
    """Return the sizes of a workload; 0 where it has no such dimension."""
    return {name: getattr(workload, name, None) or 0 for name in DIMENSIONS}


def points_of(results: Iterable[ConditionResult], own: Sizes) -> list[Point]:
    """Return what was tried, from its records. A condition's size of 0 is the workload's own."""
    points = []
    for result in results:
        sizes = {name: getattr(result.condition, name) or own[name] for name in own}
        crashed = _crashed(result)
        right = 0 < result.runs == result.passed if result.status in protocol.RAN else False if crashed else None
        points.append(Point(sizes, right, crashed))
    return points


def _crashed(result: ConditionResult) -> bool:
    """Return whether a signal or the GPU ended it. What else raised, or could not be judged, says nothing of sizes."""
    return result.status == protocol.CRASHED and result.failure in (FailureKind.SIGNAL, FailureKind.CUDA_ERROR)
