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
from .blame import enters_subject

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

# What leaves numbers that were drawn from a continuous distribution, each by itself, so: of one tensor and numbers.
ELEMENTWISE = """
    add add_ clone contiguous detach div div_ mul mul_ neg permute reshape rsub squeeze sub sub_ t to _to_copy transpose
    _unsafe_view unsqueeze view
"""

Given = Dict[str, Any]  # the arguments of a call, by name
Answer = Callable[["Draws", Given], Any]
Values = Callable[["Draws", Given, int, Any], Any]  # so many of a dtype; None: that is not answered here


class Draws(TorchDispatchMode):  # type: ignore[misc]
    """The answers on one trial."""

    def __init__(self, seed: int, trial: int, each: inputs.Each = map) -> None:
        super().__init__()
        self.seed, self.trial, self.each = seed, trial, each
        self.calls = 0
        self.foreign: list[str] = []
        # Tensors that came out of a function that was seen, by their id, and whether all of their elements were drawn
        # from a continuous distribution, each by itself: others as near to zero would do.
        self.made: dict[int, tuple[Any, bool]] = {}

    @enters_subject
    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        given = dict(zip((argument.name for argument in function._schema.arguments), args), **kwargs)
        answer = ANSWERS.get(name)
        result = answer(self, given) if answer and given.get("generator") is None else None
        if result is not None:
            is_drawn = name in CONTINUOUS
        else:
            if not is_exact(name, given):
                self.foreign.append(name)
            used = list(tensors.flat(given.values()))
            is_drawn = name in ELEMENTWISE.split() and len(used) == 1 and self.is_continuous(used[0])
            result = function(*args, **kwargs)
        for tensor in tensors.flat(result if isinstance(result, (list, tuple)) else [result]):
            self.made[id(tensor)] = weakref.ref(tensor), is_drawn
        return result

    def is_known(self, tensor: Any) -> bool:
        """Return whether a tensor came out of a function that was seen."""
        return id(tensor) in self.made and self.made[id(tensor)][0]() is tensor

    def is_continuous(self, tensor: Any) -> bool:
        return self.is_known(tensor) and self.made[id(tensor)][1]

    def came_from(self, values: Any) -> list[str]:
        """Return what had a say in these values beside exact arithmetic on what was drawn here; empty: nothing."""
        strangers = not all(map(self.is_known, tensors.flat(values)))
        return sorted({*self.foreign, *(["a tensor that PyTorch did not make"] if strangers else [])})

    # -- streams -----------------------------------------------------------------------------------------

    def _words(self, count: int, change: Callable[[Any], Any], dtype: Any) -> Any:
        """Return so many numbers of `dtype` made by `change` from as many words of the next draw's stream, by parts."""
        result, number = np.empty(count, dtype), self._next()

        def make(first: int) -> None:
            part = result[first : first + inputs.PART]
            stream = inputs.stream(self.seed, self.trial, number, first)
            for start in range(0, len(part), inputs.AT_ONCE):
                size = min(inputs.AT_ONCE, len(part) - start)
                part[start : start + size] = change(stream.random_raw(size))

        list(self.each(make, range(0, count, inputs.PART)))
        return result

    def uniforms(self, count: int, bits: int = 24) -> Any:
        """Return float32 in [0, 1), two of each word."""

        def change(words: Any) -> Any:
            lanes = (words.view(np.uint32) >> np.uint32(32 - bits)).view(np.int32)
            return (lanes.astype(np.float32) * np.float32(2.0**-bits)).view(np.uint64)

        return self._words((count + 1) // 2, change, np.uint64).view(np.float32)[:count]

    def integers(self, count: int, low: int, high: int) -> Any:
        """Return int64 in [low, high); of a range below 2**32 with a bias below one in 2**32 by its size."""
        span = int(high) - int(low)
        if not 0 < span < 1 << 32:
            return None

        def change(words: Any) -> Any:
            return ((words >> np.uint64(32)) * np.uint64(span) >> np.uint64(32)).astype(np.int64) + np.int64(low)

        return self._words(count, change, np.int64)

    def normals(self, count: int) -> Any:
        """Return float32, approximately normal. `inputs.deviates` are multiples of 2**-16, whose sums are exact in
        float32 in whatever order: a uniform fills the places below, rounded once."""
        coarse = inputs.deviates(self.seed, self.trial, self._next(), count, self.each)
        return coarse + (self.uniforms(count) - np.float32(0.5)) * np.float32(2.0**-16)

    def order(self, count: int) -> Any:
        return np.argsort(self._words(count, lambda words: words, np.uint64), kind="stable")

    def _next(self) -> int:
        self.calls += 1
        return self.calls - 1


def is_exact(name: str, given: Given) -> bool:
    """Return whether a function of PyTorch gives the same bits everywhere."""
    if name in ("add", "add_", "sub", "sub_", "rsub"):
        return bool(given.get("alpha", 1) == 1)
    if name in ("div", "div_"):
        other = given.get("other")
        return isinstance(other, (int, float)) and other != 0 and abs(math.frexp(other)[0]) == 0.5
    if name == "arange":
        return all(isinstance(given.get(key, 0), int) for key in ("start", "end", "step"))
    return name in EXACT.split()


def _new(values: Values, default: Any = None) -> Answer:
    """An answer that is a new tensor, as PyTorch was asked for."""

    def answer(draws: Draws, given: Given) -> Any:
        like = given.get("self")
        if "size" in given or like is None:
            shape, own = given.get("size", (given.get("n"),)), default or torch.get_default_dtype()
        else:
            shape, own = like.shape, like.dtype
        dtype = given.get("dtype") or own
        made = values(draws, given, int(np.prod(shape, dtype=np.int64)), dtype)
        if made is None:
            return None
        return torch.from_numpy(made).reshape(tuple(shape)).to(device=given.get("device") or "cpu", dtype=dtype)

    return answer


def _in_place(values: Values) -> Answer:
    """An answer that goes into the tensor that was given."""

    def answer(draws: Draws, given: Given) -> Any:
        target = given["self"]
        made = values(draws, given, target.numel(), target.dtype)
        return None if made is None else target.copy_(torch.as_tensor(made).reshape(target.shape))

    return answer


def _uniform(draws: Draws, given: Given, count: int, dtype: Any) -> Any:
    low, high = given.get("from", 0), given.get("to", 1)
    return _spread(draws.uniforms(count, BITS.get(dtype, 24)), high - low, low)


def _normal(draws: Draws, given: Given, count: int, _dtype: Any) -> Any:
    mean, deviation = given.get("mean", 0), given.get("std", 1)
    if not all(isinstance(value, (int, float)) for value in (mean, deviation)):
        return None
    return _spread(draws.normals(count), deviation, mean)


def _spread(values: Any, by: float, around: float) -> Any:
    """In place, rounded twice."""
    if (by, around) != (1, 0):
        values *= np.float32(by)
        values += np.float32(around)
    return values


def _integers(draws: Draws, given: Given, count: int, _dtype: Any) -> Any:
    low, high = given.get("low", given.get("from")), given.get("high", given.get("to"))
    return None if high is None else draws.integers(count, low or 0, high)


def _order(draws: Draws, _given: Given, count: int, _dtype: Any) -> Any:
    return draws.order(count)


def _bernoulli(draws: Draws, given: Given) -> Any:
    chances = given["p"] if "p" in given else given["self"]
    values = draws.uniforms(given["self"].numel())
    drawn = torch.from_numpy(values).reshape(given["self"].shape).to(given["self"].device)
    return (drawn < chances).to(given["self"].dtype)


CONTINUOUS = ("rand", "rand_like", "randn", "randn_like", "normal", "uniform_", "normal_")
ANSWERS: Mapping[str, Answer] = {
    **dict.fromkeys(("rand", "rand_like"), _new(_uniform)),
    **dict.fromkeys(("randn", "randn_like", "normal"), _new(_normal)),
    **dict.fromkeys(("randint", "randint_like"), _new(_integers, torch.int64)),
    "randperm": _new(_order, torch.int64),
    "bernoulli": _bernoulli,
    "uniform_": _in_place(_uniform),
    "normal_": _in_place(_normal),
    "random_": _in_place(_integers),
    "bernoulli_": _in_place(lambda draws, given, _count, _dtype: _bernoulli(draws, {"p": 0.5, **given})),
}


@enters_subject
def make(
    get_inputs: Callable[[], Iterable[Any]], seed: int, trial: int, each: inputs.Each = map
) -> tuple[list[Any], list[str], list[bool]]:
    """(what a problem's get_inputs() gives on a trial, names of what else had a say in its bytes, of each tensor
    whether it `is_continuous`).

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
    return values, drawing.came_from(values) + changed, [drawing.is_continuous(t) for t in tensors.flat(values)]


def _states() -> dict[str, Any]:
    """Return the states of the generators beside PyTorch's."""
    _, keys, place, *_ = np.random.get_state()
    return {"random": random.getstate(), "numpy": (np.asarray(keys).tobytes(), place)}
