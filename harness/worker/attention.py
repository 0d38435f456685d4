"""What is computed where it is attention: inputs of one shape, options, and truth. `problem` has the other kind."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np

from . import attention_gradients, dtypes, faulty, inputs, protocol, rounding, truth, wire

if TYPE_CHECKING:
    from .dtypes import Array
    from .faulty import WrongAnswer
    from .inputs import Each, Shape
    from .references import SdpaReference
    from .truth import Cache, Exact


class Given(NamedTuple):
    """An attention's inputs, arrays or tensors; None where it has none of that kind."""

    q: Any
    k: Any
    v: Any
    mask: Any  # of either kind
    keep: Any  # the draws of dropout
    d_out: Any  # what gradients are taken along


class AttentionWorkload:
    """Attention of Q [batch, heads, seq_len, head_dim] in one dtype; K and V have `kv_shape`.

    With `backward` it has several outputs (`parts`), which lie in a kernel's one after another, without gaps.
    """

    problem: None = None
    no_truth = ""
    definition, contradicts = None, ""  # by its user
    draws_numbers = False

    def __init__(self, value: wire.WorkloadRequest) -> None:
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
        self.writes: dict[int, str] = {}  # to no input

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
        """Of dropout, which draws for each head."""
        return (*self.shape[:3], self.kv_shape[2])

    @property
    def keep_scale(self) -> float:
        return 1 / (1 - self.dropout)

    def given(self, values: Sequence[Any]) -> Given:
        """Its inputs by their names."""
        q, k, v, *rest = values
        more = iter(rest)
        return Given(q, k, v, *(next(more) if has else None for has in (self.mask, self.dropout, self.backward)))

    @property
    def parts(self) -> dict[str, Shape]:
        """Shape of each output, by name."""
        if not self.backward:
            return {"": self.shape}
        return dict(zip(attention_gradients.OUTPUTS, (self.shape, self.shape, self.kv_shape, self.kv_shape)))

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
        if self.dropout:
            found.append(inputs.keep(self.dropout, self.draws_shape, seed, trial, each))
        return [*found, inputs.direction(self.dtype, self.shape, seed, trial, each)] if self.backward else found

    def arguments(self, arrays: list[Array], device: str) -> list[Any]:
        from . import tensors

        return [tensors.to_tensor(array, dtype, device) for array, (_, dtype) in zip(arrays, self.inputs)]

    def reseed(self) -> None:
        """Before a call that is judged: nothing is drawn in one."""

    def draws(self, _call: Callable[[], Any]) -> bool:
        """Whether a call of the reference draws random numbers."""
        return False

    def gradients_agree(self, _arrays: list[Array]) -> dict[str, bool]:
        """Return nothing: attention's gradients are formulas in numpy, which no version of PyTorch changes."""
        return {}

    def formula_agrees(self, _arrays: list[Array]) -> dict[str, bool]:
        """Return nothing: its ground truth is the formula itself."""
        return {}

    def precision(self, device: str, ran: Sequence[str] = ()) -> list[str]:
        """What a reference that ran these operators does beyond plain arithmetic in the dtype."""
        if not any("efficient_attention" in operator for operator in ran):
            return []
        from . import tensors

        splits = tensors.capability(device) >= (8, 0)
        return rounding.effective([rounding.TF32X3_MATMUL] if splits else [], self.dtype)

    def truths(
        self, arrays: list[Array], inputs_sha256: str, cache: Cache, precision: Sequence[str] = ()
    ) -> dict[str, Exact]:
        """The `truth.Exact` of each output for these inputs, measured by arithmetic of that precision."""
        key: list[Any] = ["attention", self.dtype, list(self.shape), self.causal, self.scale.hex()]
        key += [list(self.kv_shape)] if self.kv_shape != self.shape else []
        key += [self.mask, self.dropout] if self.mask or self.dropout else []
        key += [] if self.positions is None else [self.positions.tolist()]
        computed = functools.lru_cache(maxsize=None)(functools.partial(self.computed, arrays, cache.each, precision))

        def exact(name: str, shape: Shape) -> Exact:
            def compute(_known: Array | None) -> tuple[Array, Iterable[Array]]:
                several = precision or (self.backward and self.dtype == "float32")  # else it may be right by luck
                numbers = range(2 if several else 1)
                emulated = (self.split(computed(number)[1])[name] for number in numbers)
                values = self.split(computed(0)[0])[name]
                if name not in attention_gradients.OUTPUTS[1:]:
                    return values, emulated
                first = self.split(computed(0)[1])[name]
                turns = range(attention_gradients.TURNS)
                more = (attention_gradients.turned(values, first, number) for number in turns)
                return values, itertools.chain(emulated, more)

            own = [*key, "backward", name] if self.backward else key
            return cache.get(inputs_sha256, own, shape, self.dtype, precision, compute)

        return {name: exact(name, shape) for name, shape in self.parts.items()}

    def computed(
        self, arrays: list[Array], each: Each = map, precision: Sequence[str] = (), realisation: int = 0
    ) -> tuple[Array, Array]:
        """(truth, emulation), like a kernel's output."""
        q, k, v, mask, keep, d_out = self.given(arrays)
        if self.backward:
            both = attention_gradients.attention(
                q,
                k,
                v,
                d_out,
                self.causal,
                self.scale,
                self.dtype,
                each,
                precision,
                realisation,
                mask,
                keep,
                self.dropout,
            )
            exact, emulated = (np.concatenate([part.reshape(-1) for part in parts]) for parts in both)
            return exact, emulated
        return truth.attention(
            q,
            k,
            v,
            self.causal,
            self.scale,
            self.dtype,
            each,
            precision,
            realisation,
            self.positions,
            mask,
            keep,
            self.dropout,
        )

    def emulated(self, arrays: list[Array], precision: Sequence[str] = ()) -> Array:
        return self.computed(arrays, precision=precision)[1]

    def alike(self, arrays: list[Array], output: str = "") -> list[tuple[str, Array]]:
        """(name, values) of the inputs that have the output's shape and dtype."""
        given = self.given(arrays)
        named = [("Q", given.q), ("K", given.k), ("V", given.v), *([("dO", given.d_out)] if self.backward else [])]
        shape = self.parts.get(output, self.shape)
        return [(name, dtypes.decode(array, self.dtype)) for name, array in named if array.shape == shape]

    def wrong_answers(self, arrays: list[Array], each: Each) -> Iterator[WrongAnswer]:
        """See `power.specific`."""
        q, k, v, mask, keep, d_out = self.given(arrays)
        common = self.causal, self.scale, self.dtype, each, mask, keep, self.dropout
        yield from faulty.wrong(q, k, v, *common, main=next(iter(self.parts)))
        if self.backward:
            yield from faulty.wrong_gradients(q, k, v, d_out, *common)

    def expected(self) -> str:
        return "{} {}".format(*self.expected_output())

    def expected_output(self) -> tuple[Shape, str]:
        """What a kernel gives."""
        sizes = [math.prod(shape) for shape in self.parts.values()]
        return (sum(sizes),) if self.backward else self.shape, self.dtype

    def fits(self, shape: Shape, dtype: str) -> bool:
        return (tuple(shape), dtype) == self.expected_output()

    def references(self, names: Iterable[str], device: str) -> list[SdpaReference]:
        from . import references

        return [references.SdpaReference(name, self) for name in names]
