"""PyTorch's random functions answered from `inputs`' counter-based streams, while a problem file makes its inputs.

What a problem draws is then a function of (seed, trial, number of the draw), the same bytes under every version of
PyTorch, and can be made again whenever it is needed. Not kept, it needs no room. Uniform numbers are multiples of
2**-24, or of the dtype's own last place below 1 where that is coarser; normal ones are `inputs.deviates`, and finer.

`Draws.foreign` names what else had a say in the bytes and may differ between versions or machines: a distribution that
is not answered here, arithmetic that is not exact to the bit, tensors that came from elsewhere.
"""

from __future__ import annotations

import math
import random
import weakref
from typing import Any, Callable, Dict, Iterable, Mapping

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import inputs, tensors

BITS = {torch.float16: 11, torch.bfloat16: 8}  # of a number below 1; 24 in all others
# What moves, fills, compares or selects; and sums and products of two numbers, which IEEE 754 rounds in one way.
EXACT = """
    abs alias as_strided bitwise_and bitwise_not bitwise_or bitwise_xor cat ceil clamp clamp_max clamp_min clone
    contiguous copy_ detach diag diag_embed diagonal empty empty_like empty_strided eq expand eye fill fill_ flip floor
    full full_like ge gt index index_select le logical_and logical_not logical_or lt masked_fill
    masked_fill_ maximum minimum mul mul_ narrow ne neg new_empty new_full new_ones new_zeros ones ones_like permute
    pin_memory relu repeat reshape resize_ roll round scalar_tensor select sign slice split split_with_sizes squeeze
    stack t to _to_copy transpose tril tril_ triu triu_ trunc unbind unfold _unsafe_view unsqueeze view where zero_
    zeros zeros_like
"""

Given = Dict[str, Any]  # the arguments of a call, by name
Answer = Callable[["Draws", Given], Any]


class Draws(TorchDispatchMode):  # type: ignore[misc]
    """Of one trial."""

    def __init__(self, seed: int, trial: int, each: inputs.Each = map) -> None:
        super().__init__()
        self.seed, self.trial, self.each = seed, trial, each
        self.calls = 0
        self.foreign: list[str] = []
        self.made: dict[int, Any] = {}  # tensors that came out of a function that was seen, by their id

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        given = dict(zip((argument.name for argument in function._schema.arguments), args), **kwargs)
        answer = ANSWERS.get(name)
        result = answer(self, given) if answer and given.get("generator") is None else None
        if result is None:
            if not is_exact(name, given):
                self.foreign.append(name)
            result = function(*args, **kwargs)
        for tensor in tensors.flat(result if isinstance(result, (list, tuple)) else [result]):
            self.made[id(tensor)] = weakref.ref(tensor)
        return result

    def came_from(self, values: Any) -> list[str]:
        """Names of all that had a say in these values but exact arithmetic on what was drawn here; empty: nothing."""
        strangers = [t for t in tensors.flat(values) if self.made.get(id(t), lambda: None)() is not t]
        return sorted({*self.foreign, *(["a tensor that PyTorch did not make"] if strangers else [])})

    # -- streams -----------------------------------------------------------------------------------------

    def _words(self, number: int, count: int, change: Callable[[Any], Any], dtype: Any) -> Any:
        """`count` numbers of `dtype` made by `change` from so many words of this draw's stream, by parts."""
        result = np.empty(count, dtype)

        def make(first: int) -> None:
            part = result[first : first + inputs.PART]
            stream = inputs.stream(self.seed, self.trial, number, first)
            for start in range(0, len(part), inputs.AT_ONCE):
                size = min(inputs.AT_ONCE, len(part) - start)
                part[start : start + size] = change(stream.random_raw(size))

        list(self.each(make, range(0, count, inputs.PART)))
        return result

    def uniforms(self, count: int, bits: int = 24) -> Any:
        """Float32 in [0, 1), two of each word."""

        def change(words: Any) -> Any:
            lanes = (words.view(np.uint32) >> np.uint32(32 - bits)).view(np.int32)
            return (lanes.astype(np.float32) * np.float32(2.0**-bits)).view(np.uint64)

        return self._words(self._next(), (count + 1) // 2, change, np.uint64).view(np.float32)[:count]

    def integers(self, count: int, low: int, high: int) -> Any:
        """Int64 in [low, high); of a range below 2**32 with a bias below one in 2**32 by its size."""
        span = int(high) - int(low)
        if not 0 < span < 1 << 32:
            return None

        def change(words: Any) -> Any:
            return ((words >> np.uint64(32)) * np.uint64(span) >> np.uint64(32)).astype(np.int64) + np.int64(low)

        return self._words(self._next(), count, change, np.int64)

    def normals(self, count: int) -> Any:
        """Float32, approximately normal. `inputs.deviates` are multiples of 2**-16, whose sums are exact in float32 in
        whatever order: a uniform fills the places below, rounded once."""
        coarse = inputs.deviates(self.seed, self.trial, self._next(), count, self.each)
        return coarse + (self.uniforms(count) - np.float32(0.5)) * np.float32(2.0**-16)

    def order(self, count: int) -> Any:
        keys = self._words(self._next(), count, lambda words: words, np.uint64)
        return np.argsort(keys, kind="stable")

    def _next(self) -> int:
        self.calls += 1
        return self.calls - 1


def is_exact(name: str, given: Given) -> bool:
    """Whether a function of PyTorch gives the same bits everywhere."""
    if name in ("add", "add_", "sub", "sub_", "rsub"):
        return bool(given.get("alpha", 1) == 1)
    if name in ("div", "div_"):
        other = given.get("other")
        return isinstance(other, (int, float)) and other != 0 and abs(math.frexp(other)[0]) == 0.5
    if name == "arange":
        return all(isinstance(given.get(key, 0), int) for key in ("start", "end", "step"))
    return name in EXACT.split()


def _count(shape: Any) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _new(given: Given, shape: Any, values: Any, dtype: Any) -> Any:
    """A new tensor as PyTorch was asked for."""
    made = torch.from_numpy(values).reshape(tuple(shape))
    return made.to(device=given.get("device") or "cpu", dtype=dtype)


def _shape(given: Given) -> Any:
    return given["size"] if "size" in given else given["self"].shape


def _dtype(given: Given, default: Any) -> Any:
    like = given["self"].dtype if "size" not in given and "self" in given else default
    return given.get("dtype") or like


def _rand(draws: Draws, given: Given) -> Any:
    shape, dtype = _shape(given), _dtype(given, torch.get_default_dtype())
    return _new(given, shape, draws.uniforms(_count(shape), BITS.get(dtype, 24)), dtype)


def _randn(draws: Draws, given: Given) -> Any:
    shape = _shape(given)
    return _new(given, shape, draws.normals(_count(shape)), _dtype(given, torch.get_default_dtype()))


def _randint(draws: Draws, given: Given) -> Any:
    shape = _shape(given)
    values = draws.integers(_count(shape), given.get("low", 0), given["high"])
    return None if values is None else _new(given, shape, values, _dtype(given, torch.int64))


def _randperm(draws: Draws, given: Given) -> Any:
    return _new(given, (given["n"],), draws.order(given["n"]), given.get("dtype") or torch.int64)


def _normal(draws: Draws, given: Given) -> Any:
    if not all(isinstance(given.get(key, 0.0), (int, float)) for key in ("mean", "std")) or "size" not in given:
        return None
    values = _spread(draws.normals(_count(given["size"])), given.get("std", 1), given.get("mean", 0))
    return _new(given, given["size"], values, _dtype(given, torch.get_default_dtype()))


def _bernoulli(draws: Draws, given: Given) -> Any:
    chances = given["p"] if "p" in given else given["self"]
    values = draws.uniforms(given["self"].numel())
    drawn = torch.from_numpy(values).reshape(given["self"].shape).to(given["self"].device)
    return (drawn < chances).to(given["self"].dtype)


def _in_place(values: Callable[[Draws, Given, int], Any]) -> Answer:
    """An answer that goes into the tensor that was given."""

    def answer(draws: Draws, given: Given) -> Any:
        target = given["self"]
        made = values(draws, given, target.numel())
        if made is None:
            return None
        if not isinstance(made, torch.Tensor):
            made = torch.from_numpy(made)
        return target.copy_(made.reshape(target.shape))

    return answer


def _spread(values: Any, by: float, around: float) -> Any:
    """In place, rounded twice."""
    values *= np.float32(by)
    values += np.float32(around)
    return values


def _uniform_(draws: Draws, given: Given, count: int) -> Any:
    low, high = given.get("from", 0), given.get("to", 1)
    return _spread(draws.uniforms(count, BITS.get(given["self"].dtype, 24)), high - low, low)


def _random_(draws: Draws, given: Given, count: int) -> Any:
    if given.get("to") is None:
        return None
    return draws.integers(count, given.get("from") or 0, given["to"])


ANSWERS: Mapping[str, Answer] = {
    "rand": _rand,
    "rand_like": _rand,
    "randn": _randn,
    "randn_like": _randn,
    "randint": _randint,
    "randint_like": _randint,
    "randperm": _randperm,
    "normal": _normal,
    "bernoulli": _bernoulli,
    "uniform_": _in_place(_uniform_),
    "normal_": _in_place(lambda d, g, count: _spread(d.normals(count), g.get("std", 1), g.get("mean", 0))),
    "random_": _in_place(_random_),
    "bernoulli_": _in_place(lambda d, g, _count: _bernoulli(d, {"p": 0.5, **g})),
}


def make(
    get_inputs: Callable[[], Iterable[Any]], seed: int, trial: int, each: inputs.Each = map
) -> tuple[list[Any], list[str]]:
    """(what a problem's get_inputs() gives on a trial, names of what else had a say in its bytes).

    All generators that it could draw from are seeded by the trial too: what is not answered here is at least the same
    in every process of an environment.
    """
    torch.manual_seed((seed + 1000003 * trial) % 2**63)
    random.seed(f"{seed} {trial}")
    np.random.seed((seed + 1000003 * trial) % 2**32)
    before = _states()
    drawing = Draws(seed, trial, each)
    with drawing:
        values = list(get_inputs())
    changed = [name for name, state in _states().items() if state != before[name]]
    return values, drawing.came_from(values) + changed


def _states() -> dict[str, Any]:
    """Of the generators beside PyTorch's."""
    _, keys, place, *_ = np.random.get_state()
    return {"random": random.getstate(), "numpy": (np.asarray(keys).tobytes(), place)}
