"""What is judged and timed: the workload of a request, and one trial of it with its inputs and its truth."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Sequence, Union

from . import inputs, wire
from .attention import AttentionWorkload

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape
    from .problem import ProblemWorkload
    from .truth import Cache, Exact
    from .workload import Memo

    Workload = Union[AttentionWorkload, ProblemWorkload]


def parse_workload(value: wire.WorkloadRequest) -> Workload:
    """Return the workload that a request describes."""
    if value.problem:
        from .problem import ProblemWorkload

        return ProblemWorkload(value)
    return AttentionWorkload(value)


class WorkloadTrial:
    """One trial of a recipe: its inputs, and the truth of them, made once for each precision that is asked for."""

    def __init__(self, workload: Workload, recipe: str, number: int, seed: int, cache: Cache) -> None:
        self.workload, self.number, self.cache = workload, number, cache
        self.arrays = workload.arrays(recipe, number, seed, cache.each)
        self.found: dict[tuple[tuple[str, ...], str], Exact | None] = {}
        self.memo: Memo = {}  # what is computed of it for all outputs at once

    @functools.cached_property
    def sha256(self) -> str:
        return inputs.digest(self.arrays)

    @property
    def sources(self) -> list[Array]:
        """Return the inputs of a problem as its model sees them: some lie among other elements in memory."""
        from .problem_files import Inputs, lay_out

        assert self.workload.problem is not None and isinstance(self.arrays, Inputs)
        return Inputs(lay_out(self.workload.operator, self.arrays.values))

    @functools.cached_property
    def truth_repeats(self) -> bool:
        """Return whether the ground truth is the same when it is computed again, to within its rounding."""
        return self.workload.repeats(self.arrays)

    def truth(
        self, precision: Sequence[str] = (), output: str = "", like: tuple[Shape, str] | None = None
    ) -> Exact | None:
        """Return the truth of one output, by its name; `like` as `BaseWorkload.truth` has it."""
        key = tuple(precision), output
        if key not in self.found:
            own = self.arrays, self.sha256, self.cache, precision, output, like, self.memo
            self.found[key] = self.workload.truth(*own)
        return self.found[key]
