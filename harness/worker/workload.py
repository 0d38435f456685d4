"""What is computed: an attention of one shape, with its inputs and truth. `problem.py` has the other kind."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence, Union

from . import dtypes, faulty, inputs, protocol, truth, wire

if TYPE_CHECKING:
    from .dtypes import Array
    from .faulty import WrongAnswer
    from .inputs import Each, Shape
    from .problem import ProblemWorkload
    from .references import SdpaReference
    from .truth import Cache, Exact

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
    """Attention of Q [batch, heads, seq_len, head_dim] in one dtype; K and V have `kv_shape`."""

    problem: None = None
    no_truth = ""

    def __init__(self, value: wire.WorkloadRequest) -> None:
        assert value.batch and value.heads and value.seq_len and value.head_dim and value.scale is not None
        self.id = value.id
        self.dtype = value.dtype
        self.shape: Shape = (value.batch, value.heads, value.seq_len, value.head_dim)
        self.kv_heads, self.kv_len = value.kv_heads, value.kv_len  # None: those of Q
        self.mask, self.dropout = value.mask, value.dropout
        self.causal = bool(value.causal)
        self.scale = value.scale
        self.recipes = dict(value.recipes)
        self.positions: Array | None = None  # of its queries, where they are a part

    @property
    def kv_shape(self) -> Shape:
        batch, heads, rows, columns = self.shape
        return batch, self.kv_heads or heads, self.kv_len or rows, columns

    @property
    def inputs(self) -> list[tuple[Shape, str]]:
        """Shape and dtype of each."""
        found = [(shape, self.dtype) for shape in (self.shape, self.kv_shape, self.kv_shape)]
        if self.mask:
            found.append((self.pairs, self.dtype if self.mask == "bias" else "bool"))
        return [*found, (self.draws_shape, "bool")] if self.dropout else found

    @property
    def pairs(self) -> Shape:
        """Shape of a mask, which is the same for all heads."""
        return self.shape[0], 1, self.shape[2], self.kv_shape[2]

    @property
    def draws_shape(self) -> Shape:
        """Of dropout, which draws for each head."""
        return (*self.shape[:3], self.kv_shape[2])

    @property
    def keep_scale(self) -> float:
        return 1 / (1 - self.dropout)

    def masks(self, given: list[Any]) -> tuple[Any, Any]:
        """(mask of either kind, draws of dropout) of its inputs after Q, K and V; None where there is none."""
        return given[0] if self.mask else None, given[-1] if self.dropout else None

    @property
    def options(self) -> str:
        """What it has beyond a shape, causal and scale, in words; empty where it has nothing."""
        named = {"kv_heads": self.kv_heads, "kv_len": self.kv_len, "mask": self.mask, "dropout": self.dropout}
        return ", ".join(f"{name} {value}" for name, value in named.items() if value)

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
        that is the head dimension's, 1/sqrt(d), follows it; `kv_heads` becomes its greatest common divisor with the
        heads, and `kv_len` stays."""
        found = copy.copy(self)
        batch, heads, seq_len, head_dim = (size or own for size, own in zip(sizes, self.shape))
        found.shape = batch, heads, seq_len, head_dim
        found.kv_heads = self.kv_heads and math.gcd(heads, self.kv_heads)
        if head_dim != self.shape[3]:
            found.scale = self.scale * (self.shape[3] / head_dim) ** 0.5
        return found

    def part(self, heads: int, positions: Array) -> AttentionWorkload:
        """The workload of so many of its heads, and of their queries at these `positions` [rows], ascending. Its truth
        takes Q [1, heads, rows, head_dim], and K and V [1, heads, keys, head_dim]."""
        found = copy.copy(self)
        found.shape = (1, heads, len(positions), self.shape[3])
        found.kv_heads, found.kv_len = None, self.kv_shape[2]
        found.positions = positions
        return found

    def arrays(self, recipe: str, trial: int, seed: int, each: Each = map) -> list[Array]:
        """Input arrays in `dtype`'s storage."""
        found = inputs.generate(recipe, self.dtype, self.shape, seed, trial, each, self.kv_shape)
        if self.mask:
            found.append(inputs.mask(self.mask, self.dtype, self.pairs, seed, trial, each))
        return [*found, inputs.keep(self.dropout, self.draws_shape, seed, trial, each)] if self.dropout else found

    def arguments(self, arrays: list[Array], device: str) -> list[Any]:
        from . import tensors

        return [tensors.to_tensor(array, dtype, device) for array, (_, dtype) in zip(arrays, self.inputs)]

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
        key += [list(self.kv_shape)] if self.kv_shape != self.shape else []
        key += [self.mask, self.dropout] if self.mask or self.dropout else []
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
        q, k, v, *given = arrays
        mask, keep = self.masks(given)
        return truth.attention(
            q, k, v, self.causal, self.scale, self.dtype, each, precision, realisation, self.positions, mask, keep,
            self.dropout,
        )  # fmt: skip

    def emulated(self, arrays: list[Array], precision: Sequence[str] = ()) -> Array:
        return self.computed(arrays, precision=precision)[1]

    def alike(self, arrays: list[Array]) -> list[tuple[str, Array]]:
        """(name, values) of the inputs that have the output's shape and dtype."""
        named = zip("QKV", arrays)
        return [(name, dtypes.decode(array, self.dtype)) for name, array in named if array.shape == self.shape]

    def wrong_answers(self, arrays: list[Array], each: Each) -> Iterator[WrongAnswer]:
        """See `power.specific`."""
        q, k, v, *given = arrays
        return faulty.wrong(q, k, v, self.causal, self.scale, self.dtype, each, *self.masks(given), self.dropout)

    def expected(self) -> str:
        return f"{self.shape} {self.dtype}"

    def expected_output(self) -> tuple[Shape, str] | None:
        return self.shape, self.dtype

    def fits(self, shape: Shape, dtype: str) -> bool:
        return tuple(shape) == self.shape and dtype == self.dtype

    def references(self, names: Iterable[str], device: str) -> list[SdpaReference]:
        from . import references

        options = bool(self.mask), bool(self.dropout)
        return [references.SdpaReference(name, self.causal, self.scale, *options) for name in names]
