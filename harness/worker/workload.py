"""What every kind of workload has in common: its outputs, and their truth, made of what a subclass computes.

A problem is `problem.ProblemWorkload`, an operator too; `attention.AttentionWorkload` is the shipped one. Each says how
its outputs are computed exactly, and how by the arithmetic of its dtype. `subjects` makes them from requests.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Mapping, Sequence, Tuple

import numpy as np

from . import dtypes, rounding

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape
    from .truth import Cache, Exact

    Values = Dict[str, Array]  # outputs by name
    Emulated = Tuple[Values, bool]  # and whether the arithmetic left the dtype's range on its way
    Memo = Dict[object, Any]  # what was computed on one trial's inputs, for all outputs at once

FEW_ELEMENTS = 4096  # of an output: fewer may all be near the truth by luck


class BaseWorkload:
    """Something that is computed in one dtype."""

    id: str
    dtype: str
    no_truth = ""  # why there is no ground truth
    contradicts = ""  # how the model's output cannot be what its definition gives
    draws_numbers = False  # known once its truth was asked for
    backward: Any = False
    writes: dict[int, str]

    def __init__(self) -> None:
        self.drawing = threading.RLock()  # truths are computed in other threads, and PyTorch's generator is one

    # -- of a subclass -----------------------------------------------------------------------------------

    @property
    def parts(self) -> Mapping[str, Shape | None]:
        """Return the shape of each output that a kernel gives, by name."""
        raise NotImplementedError

    def describe(self, output: str) -> tuple[str, Shape, str, Sequence[object]]:
        """Return an output's name, shape and dtype, and what beside its inputs determines it."""
        raise NotImplementedError

    def exact(self, arrays: list[Array]) -> Values:
        """Return the outputs in float64."""
        raise NotImplementedError

    def emulations(self, arrays: list[Array], precision: Sequence[str] = (), realisation: int = 0) -> Emulated:
        """Return what straightforward arithmetic in the dtype gives, as arrays that hold it exactly, and whether it
        left the dtype's range on its way."""
        raise NotImplementedError

    # -- truth -------------------------------------------------------------------------------------------

    def truth(
        self,
        arrays: list[Array],
        inputs_sha256: str,
        cache: Cache,
        precision: Sequence[str] = (),
        output: str = "",
        like: tuple[Shape, str] | None = None,
        memo: Memo | None = None,
    ) -> Exact | None:
        """Return the `truth.Exact` of one output, else of the main one; None where it cannot be, and `no_truth` says
        why. `like`: its shape and dtype for these inputs, on which they may depend."""
        memo = {} if memo is None else memo
        try:
            with self.drawing:
                name, shape, dtype, key = self.describe(output)
                shape, dtype = like or (shape, dtype)

                def compute(known: Array | None) -> tuple[Array, Iterable[Array]]:
                    return self._compute(known, arrays, precision, name, (shape, dtype), memo)

                return cache.get(inputs_sha256, [*key, list(shape), dtype, name], shape, dtype, precision, compute)
        except Exception as error:
            self.refuse_truth(error)
            print(f"no truth: {self.no_truth}", file=sys.stderr)
            return None

    def refuse_truth(self, error: Exception) -> None:
        """Say in `no_truth` why there is none."""
        self.no_truth = f"{type(error).__name__}: {error}"[:500]

    def truths(
        self, arrays: list[Array], inputs_sha256: str, cache: Cache, precision: Sequence[str] = ()
    ) -> dict[str, Exact | None]:
        """Return the truth of each output that a kernel gives, by name."""
        memo: Memo = {}
        return {name: self.truth(arrays, inputs_sha256, cache, precision, name, memo=memo) for name in self.parts}

    def _compute(
        self,
        known: Array | None,
        arrays: list[Array],
        precision: Sequence[str],
        name: str,
        like: tuple[Shape, str],
        memo: Memo,
    ) -> tuple[Array, Iterable[Array]]:
        """Return the truth, and as many emulated outputs as it takes for none of them to be near it by luck."""
        shape, dtype = like
        if known is None:
            known = _once(memo, "exact", lambda: self.exact(arrays))[name]
            self.check_shape(known.shape, shape)
        exact: Array = known

        def emulate(number: int) -> Array:
            key = *precision, number
            made, leaves_range = _once(memo, key, lambda: self.emulations(arrays, precision, number))
            return rounding.without_lost(made[name], exact, dtype) if leaves_range else made[name]

        count = self.count_emulations(name, int(np.prod(shape, dtype=np.int64)), precision)
        return exact, self.more_emulations(name, exact, map(emulate, range(count)))

    def count_emulations(self, _name: str, size: int, precision: Sequence[str]) -> int:
        """Return how many emulations it takes for none to be near the truth by luck."""
        if size < FEW_ELEMENTS:
            return 4
        return 1 if self.dtype in ("float16", "bfloat16") and not precision else 2

    def check_shape(self, found: Shape, expected: Shape) -> None:
        """Raise ValueError where the truth has another shape than the output."""
        if tuple(found) != tuple(expected):
            raise ValueError(f"the float64 result is {list(found)}, and the output {list(expected)}")

    def more_emulations(self, _name: str, _exact: Array, emulated: Iterable[Array]) -> Iterable[Array]:
        """Return the emulated outputs, and what else of them counts."""
        return emulated

    def repeats(self, _arrays: list[Array]) -> bool:
        """Return whether the ground truth is the same when it is computed again, to within its rounding."""
        return True

    def gradients_agree(self, _arrays: list[Array]) -> dict[str, bool]:
        """Return, for each gradient, whether it is the slope of the outputs; nothing where that is not checked."""
        return {}

    def formula_agrees(self, _arrays: list[Array]) -> dict[str, bool]:
        """Return, for each output, whether it is what the formula of attention gives; nothing where none is called."""
        return {}

    def _alike(self, named: Iterable[tuple[str, Array]], shape: Shape | None, dtype: str) -> list[tuple[str, Array]]:
        """Return (name, values) of the inputs, each in the storage of `dtype`, that have the output's shape."""
        return [(name, dtypes.decode(array, dtype)) for name, array in named if array.shape == shape]


def _once(memo: Memo, key: object, make: Callable[[], Any]) -> Any:
    if key in memo:
        return memo[key]
    made = make()
    if len(made[0] if isinstance(made, tuple) else made) > 1:  # another output will ask for it
        memo[key] = made
    return made
