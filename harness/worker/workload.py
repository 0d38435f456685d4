"""A workload of either kind, and one trial of it: its inputs and its truth."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Sequence, Union

from . import inputs, wire
from .attention import AttentionWorkload

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape
    from .problem import ProblemWorkload
    from .subject import Memo
    from .truth import Cache, Exact

    Workload = Union[AttentionWorkload, ProblemWorkload]


def parse_workload(value: wire.WorkloadRequest) -> Workload:
    if value.problem:
        from . import problem

        return problem.ProblemWorkload(value)
    return AttentionWorkload(value)


class Trial:
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
        """The inputs of a problem as its model sees them: some lie among other elements in memory."""
        from . import operator_problem, problem_files

        assert self.workload.problem is not None and isinstance(self.arrays, problem_files.Inputs)
        return problem_files.Inputs(operator_problem.laid_out(self.workload.operator, self.arrays.values))

    @functools.cached_property
    def truth_repeats(self) -> bool:
        """Whether the ground truth is the same when it is computed again, to within its rounding."""
        return self.workload.repeats(self.arrays)

    def truth(
        self, precision: Sequence[str] = (), output: str = "", like: tuple[Shape, str] | None = None
    ) -> Exact | None:
        """Return the truth of one output, by its name; `like` as `Subject.truth` has it."""
        key = tuple(precision), output
        if key not in self.found:
            own = self.arrays, self.sha256, self.cache, precision, output, like, self.memo
            self.found[key] = self.workload.truth(*own)
        return self.found[key]
