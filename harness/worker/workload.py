"""What is computed: an attention of one shape, with its inputs and truth. `problem.py` has the other kind."""

from __future__ import annotations

import copy
import functools
import itertools
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence, Union

from . import dtypes, inputs, protocol, truth, wire

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Each, Shape
    from .problem import ProblemWorkload
    from .references import SdpaReference
    from .truth import Cache, Exact, WrongAnswer

    Workload = Union["AttentionWorkload", ProblemWorkload]


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

    @functools.cached_property
    def sha256(self) -> str:
        return inputs.digest(self.arrays)

    def truth(
        self, precision: Sequence[str] = (), output: str = "", like: tuple[Shape, str] | None = None
    ) -> Exact | None:
        """Of one output, by its name; `like` as `ProblemWorkload.truth` has it."""
        key = tuple(precision), output
        if key not in self.found:
            self.found[key] = self.workload.truth(self.arrays, self.sha256, self.cache, precision, output, like)
        return self.found[key]


class AttentionWorkload:
    """Self-attention over [batch, heads, seq_len, head_dim] in one dtype."""

    problem: None = None
    no_truth = ""

    def __init__(self, value: wire.WorkloadRequest) -> None:
        assert value.batch and value.heads and value.seq_len and value.head_dim and value.scale is not None
        self.id = value.id
        self.dtype = value.dtype
        self.shape: Shape = (value.batch, value.heads, value.seq_len, value.head_dim)
        self.causal = bool(value.causal)
        self.scale = value.scale
        self.recipes = dict(value.recipes)
        self.positions: Array | None = None  # of its queries, where they are a part

    def on(self, recipe: str) -> AttentionWorkload:
        """The workload of a recipe: where Q and K are halved the scale makes up for it, and the weights stay."""
        halvings = protocol.SCALED_RECIPES.get(recipe, 0)
        if not halvings:
            return self
        found = copy.copy(self)
        found.scale = self.scale * 4.0**halvings
        return found

    def of_sizes(self, sizes: tuple[int, int, int, int]) -> AttentionWorkload:
        """The workload with another batch, number of heads, sequence length and head dimension; 0: its own. A scale
        that is the head dimension's, 1/sqrt(d), follows it."""
        found = copy.copy(self)
        batch, heads, seq_len, head_dim = (size or own for size, own in zip(sizes, self.shape))
        found.shape = batch, heads, seq_len, head_dim
        if head_dim != self.shape[3]:
            found.scale = self.scale * (self.shape[3] / head_dim) ** 0.5
        return found

    def part(self, heads: int, positions: Array) -> AttentionWorkload:
        """The workload of so many of its heads, and of their queries at these `positions` [rows], ascending. Its truth
        takes Q [1, heads, rows, head_dim], and K and V [1, heads, seq_len, head_dim]."""
        found = copy.copy(self)
        found.shape = (1, heads, len(positions), self.shape[3])
        found.positions = positions
        return found

    def arrays(self, recipe: str, trial: int, seed: int, each: Each = map) -> list[Array]:
        """Input arrays in `dtype`'s storage."""
        return inputs.generate(recipe, self.dtype, self.shape, seed, trial, each)

    def arguments(self, arrays: list[Array], device: str) -> list[Any]:
        from . import tensors

        return [tensors.to_tensor(array, self.dtype, device) for array in arrays]

    def reseed(self) -> None:
        """Before a call that is judged: nothing is drawn in one."""

    def draws(self, _call: Callable[[], Any]) -> bool:
        """Whether a call of the reference draws random numbers."""
        return False

    def precision(self, _device: str) -> list[str]:
        """What the references do beyond plain arithmetic in the dtype."""
        return []

    def truth(
        self, arrays: list[Array], inputs_sha256: str, cache: Cache, precision: Sequence[str] = (), *_output: object
    ) -> Exact:
        """The `truth.Exact` of these inputs, measured by arithmetic of that precision."""
        key: list[Any] = ["attention", self.dtype, list(self.shape), self.causal, self.scale.hex()]
        key += [] if self.positions is None else [self.positions.tolist()]

        def compute(_known: Array | None) -> tuple[Array, Iterable[Array]]:
            exact, emulated = self.computed(arrays, cache.each, precision)
            more = (self.computed(arrays, cache.each, precision, number)[1] for number in ([1] if precision else []))
            return exact, itertools.chain([emulated], more)

        return cache.get(inputs_sha256, key, self.shape, self.dtype, precision, compute)

    def computed(
        self, arrays: list[Array], each: Each = map, precision: Sequence[str] = (), realisation: int = 0
    ) -> tuple[Array, Array]:
        """(truth, emulation)."""
        q, k, v = arrays
        return truth.attention(
            q, k, v, self.causal, self.scale, self.dtype, each, precision, realisation, self.positions
        )

    def emulated(self, arrays: list[Array], precision: Sequence[str] = ()) -> Array:
        return self.computed(arrays, precision=precision)[1]

    def alike(self, arrays: list[Array]) -> list[tuple[str, Array]]:
        """(name, values) of the inputs that have the output's shape and dtype."""
        return [(name, dtypes.decode(array, self.dtype)) for name, array in zip("QKV", arrays)]

    def wrong_answers(self, arrays: list[Array], each: Each) -> Iterator[WrongAnswer]:
        """See `power.specific`."""
        q, k, v = arrays
        return truth.wrong(q, k, v, self.causal, self.scale, self.dtype, each)

    def expected(self) -> str:
        return f"{self.shape} {self.dtype}"

    def expected_output(self) -> tuple[Shape, str] | None:
        return self.shape, self.dtype

    def fits(self, shape: Shape, dtype: str) -> bool:
        return tuple(shape) == self.shape and dtype == self.dtype

    def references(self, names: Iterable[str], device: str) -> list[SdpaReference]:
        from . import references

        return [references.SdpaReference(name, self.causal, self.scale) for name in names]
