"""What is computed where it is attention: inputs of one shape, options, and truth. `problem` has the other kind."""

from __future__ import annotations

import copy
import itertools
import math
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, Sequence

import numpy as np

from . import inputs, protocol, rounding, wire
from .workload import FEW_ELEMENTS, BaseWorkload

if TYPE_CHECKING:
    from .dtypes import Array
    from .emulation import Arithmetic
    from .inputs import Each, Shape
    from .references import SdpaReference
    from .workload import Emulated, Values

OUTPUTS = ("output", "grad of q", "grad of k", "grad of v")
DRAWN, TURNS = 20240521, 6  # the generator's key, and how often signs of errors are drawn


class AttentionInputs(NamedTuple):
    """An attention's inputs, arrays or tensors; None where it has none of that kind."""

    q: Any
    k: Any
    v: Any
    mask: Any  # of either kind
    keep: Any  # the draws of dropout
    d_out: Any  # what gradients are taken along


class AttentionWorkload(BaseWorkload):
    """Attention of Q [batch, heads, seq_len, head_dim] in one dtype; K and V have `kv_shape`.

    With `backward` it has several outputs (`parts`), which lie in a kernel's one after another, without gaps.
    """

    problem: None = None
    operator: None = None
    definition = None  # by its user

    def __init__(self, value: wire.WorkloadRequest) -> None:
        super().__init__()
        assert value.batch and value.heads and value.seq_len and value.head_dim and value.scale is not None
        self.id = value.id
        self.dtype = value.dtype
        self.shape: Shape = (value.batch, value.heads, value.seq_len, value.head_dim)
        self.kv_heads, self.kv_len = value.kv_heads, value.kv_len  # None: those of Q
        self.mask, self.dropout = value.mask, value.dropout
        self.causal, self.backward = bool(value.causal), value.backward
        self.scale = value.scale
        self.recipes = dict(value.recipes)
        self.positions: Array | None = None  # of its queries, where they are a part
        self.writes = {}  # to no input

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
        found += [(self.draws_shape, "bool")] if self.dropout else []
        return [*found, (self.shape, self.dtype)] if self.backward else found

    @property
    def pairs(self) -> Shape:
        """Shape of a mask, which is the same for all heads."""
        return self.shape[0], 1, self.shape[2], self.kv_shape[2]

    @property
    def draws_shape(self) -> Shape:
        """Return the shape of the draws of dropout, which draws for each head."""
        return (*self.shape[:3], self.kv_shape[2])

    @property
    def keep_scale(self) -> float:
        return 1 / (1 - self.dropout)

    def given(self, values: Sequence[Any]) -> AttentionInputs:
        """Its inputs by their names."""
        q, k, v, *rest = values
        more = iter(rest)
        return AttentionInputs(
            q, k, v, *(next(more) if has else None for has in (self.mask, self.dropout, self.backward))
        )

    @property
    def parts(self) -> dict[str, Shape]:
        """Shape of each output, by name."""
        if not self.backward:
            return {"": self.shape}
        return dict(zip(OUTPUTS, (self.shape, self.shape, self.kv_shape, self.kv_shape)))

    def split(self, output: Any) -> dict[str, Any]:
        """Views of the outputs that a kernel's is made of, an array or a tensor, by name."""
        if not self.backward:
            return {"": output}
        flat, sizes = output.reshape(-1), [math.prod(shape) for shape in self.parts.values()]
        ends = list(itertools.accumulate(sizes))
        return {
            name: flat[end - size : end].reshape(shape)
            for (name, shape), size, end in zip(self.parts.items(), sizes, ends)
        }

    @property
    def options(self) -> str:
        """Return what it has beyond a shape, causal and scale, in words; empty where it has nothing."""
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
        if self.dropout:
            found.append(inputs.keep(self.dropout, self.draws_shape, seed, trial, each))
        return [*found, inputs.direction(self.dtype, self.shape, seed, trial, each)] if self.backward else found

    def arguments(self, arrays: list[Array], device: str) -> list[Any]:
        from . import tensors

        return [tensors.to_tensor(array, dtype, device) for array, (_, dtype) in zip(arrays, self.inputs)]

    def reseed(self) -> None:
        """Before a call that is judged: nothing is drawn in one."""

    def draws(self, _call: Callable[[], Any]) -> bool:
        """Return whether a call of the reference draws random numbers."""
        return False

    def precision(self, device: str, ran: Sequence[str] = ()) -> list[str]:
        """Return what a reference that ran these operators does beyond plain arithmetic in the dtype."""
        if not any("efficient_attention" in operator for operator in ran):
            return []
        from . import tensors

        splits = tensors.capability(device) >= (8, 0)
        return rounding.effective([rounding.TF32X3_MATMUL] if splits else [], self.dtype)

    def describe(self, output: str) -> tuple[str, Shape, str, Sequence[object]]:
        """Return an output's name, shape and dtype, and what beside its inputs determines it."""
        name = output if output in self.parts else next(iter(self.parts))
        asked = [self.dtype, self.shape, self.kv_shape, self.causal, self.scale.hex(), self.mask, self.dropout]
        positions = None if self.positions is None else self.positions.tolist()
        return name, self.parts[name], self.dtype, ["attention", *asked, positions, self.backward]

    def exact(self, arrays: list[Array]) -> Values:
        """Return the outputs in float64."""
        from .emulation import Arithmetic

        return self._computed(arrays, lambda _: Arithmetic())[0]

    def emulations(self, arrays: list[Array], precision: Sequence[str] = (), realisation: int = 0) -> Emulated:
        """Return what straightforward arithmetic in the dtype gives, and whether it left the dtype's range."""
        from .arithmetic import Realisation
        from .emulation import Arithmetic

        found, arithmetics = self._computed(arrays, lambda head: Arithmetic(Realisation(realisation, head), precision))
        return found, any(each.leaves_range for each in arithmetics)

    def _computed(
        self, arrays: list[Array], arithmetic_of: Callable[[int], Arithmetic]
    ) -> tuple[dict[str, Array], list[Arithmetic]]:
        from . import attention_formula

        given = self.given(self.arguments(arrays, "cpu"))
        found, arithmetics = attention_formula.compute(self, given, arithmetic_of)
        return {name: tensor.numpy() for name, tensor in zip(self.parts, found)}, arithmetics

    def count_emulations(self, name: str, size: int, precision: Sequence[str]) -> int:
        """Return how many it takes: of a large output one, whose errors are of very many sums."""
        count = super().count_emulations(name, size, precision)
        return count if precision or size < FEW_ELEMENTS or name in OUTPUTS[1:] else 1

    def more_emulations(self, name: str, exact: Array, emulated: Iterable[Array]) -> Iterable[Array]:
        """Return the emulations; of a gradient also the first with the signs of its errors drawn anew, of rows or of
        elements. A mean over errors is near zero by luck where few rows carry most of it, as where one key has nearly
        all weight, or where there are few rows at all."""
        made = iter(emulated)
        first = next(made)
        yield first
        yield from made
        for number in range(TURNS if name in OUTPUTS[1:] else 0):
            shape = exact.shape if number % 2 else (*exact.shape[:-1], 1)
            drawn = inputs.deviates(DRAWN, number, 0, math.prod(shape)).reshape(shape)
            yield exact + np.where(drawn > 0, 1.0, -1.0) * (first - exact)

    def alike(self, arrays: list[Array], output: str = "") -> list[tuple[str, Array]]:
        """Return (name, values) of the inputs that have the output's shape and dtype."""
        given = self.given(arrays)
        named = [("Q", given.q), ("K", given.k), ("V", given.v), *([("dO", given.d_out)] if self.backward else [])]
        return self._alike(named, self.parts.get(output, self.shape), self.dtype)

    def expected(self) -> str:
        return "{} {}".format(*self.expected_output())

    def expected_output(self) -> tuple[Shape, str]:
        """Return what a kernel gives."""
        sizes = [math.prod(shape) for shape in self.parts.values()]
        return (sum(sizes),) if self.backward else self.shape, self.dtype

    def fits(self, shape: Shape, dtype: str) -> bool:
        return (tuple(shape), dtype) == self.expected_output()

    def references(self, names: Iterable[str], device: str) -> list[SdpaReference]:
        from . import references

        return [references.SdpaReference(name, self) for name in names]
