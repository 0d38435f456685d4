"""Input tensors that are the same bytes on every machine, Python, numpy and PyTorch.

`Philox` (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC 2011) is a counter-based generator:
a tensor is a pure function of (seed, trial, tensor index), in any order, on any machine. numpy promises that
a bit generator's raw stream does not change (NEP 19); it promises no such thing for `normal`, whose bits
differ between numpy versions and instruction sets.

The deviates are sums of twelve 16-bit uniforms (Irwin-Hall), centred and scaled by a power of two: integer
arithmetic and one exact scaling, with no logarithm or cosine whose last bit could differ. Mean 0, variance
1 - 2**-32, symmetric; excess kurtosis -0.1; nothing beyond +-6 (393210/65536), where a normal deviate is found
twice in 10**9.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Tuple

import numpy as np

from . import dtypes, protocol

if TYPE_CHECKING:
    from .dtypes import Array

Each = Callable[..., Iterable[Any]]  # runs a function on every part: as `map` does, or a pool's
Shape = Tuple[int, ...]

UNIFORMS = 12
LARGE = 8.0  # factor on Q in `large_logits`: logits spread by 8, so that few keys carry each row
STEEP = 64.0  # the same in `steep_logits`: exp overflows float32 where the maximum is not taken off first
TAIL_KEYS, TAIL = 16, 16.0  # `dominant_tail`: the last keys' products with every query are larger by TAIL * TAIL
OFFSET = 256.0  # `offset_logits`: every product is larger by OFFSET * OFFSET, which is beyond float16's range
MASK, KEEP, DIRECTION = 3, 4, 5  # the tensors' numbers: Q, K and V are 0 to 2
EMPTY = 8  # of so many rows of `empty_rows` one sees no key
LANES = np.uint64(0x0000FFFF0000FFFF)
AT_ONCE = 1 << 15  # deviates made at a time: their words stay in a processor's cache
PART = 1 << 20  # deviates that a thread makes


def deviates(seed: int, trial: int, tensor: int, count: int, each: Each = map) -> Array:
    """`count` approximately normal float32 deviates of the stream (seed, trial, tensor); exact, portable."""
    result = np.empty(count, np.float32)

    def make(first: int) -> None:
        # Deviate i has the words i, count + i and 2 count + i: three places in one stream, read side by side.
        streams = [stream(seed, trial, tensor, third * count + first) for third in range(3)]
        _fill(result[first : first + PART], streams)

    list(each(make, range(0, count, PART)))
    return result


def _fill(result: Array, streams: list[Any]) -> None:
    for start in range(0, len(result), AT_ONCE):
        size = min(AT_ONCE, len(result) - start)
        # Four uniforms in each 64-bit word, added pairwise in two 32-bit lanes.
        lanes = np.zeros(size, np.uint64)
        for stream in streams:
            words = stream.random_raw(size)
            lanes += words & LANES
            words >>= np.uint64(16)
            words &= LANES
            lanes += words
        total = (lanes & np.uint64(0xFFFFFFFF)) + (lanes >> np.uint64(32))
        centred = total.astype(np.int32) - np.int32(UNIFORMS * 65535 // 2)
        np.multiply(centred, np.float32(2.0**-16), out=result[start : start + size], dtype=np.float32)


def stream(seed: int, trial: int, tensor: int, word: int) -> Any:
    """The generator of (seed, trial, tensor), before its word of that number. One step of its counter is four words."""
    generator = np.random.Philox(
        key=np.array([seed, 0], dtype=np.uint64), counter=np.array([0, 0, trial, tensor], dtype=np.uint64)
    )
    generator.advance(word // 4)
    generator.random_raw(word % 4)
    return generator


def generate(
    recipe: str, dtype: str, shape: Shape, seed: int, trial: int, each: Each = map, kv_shape: Shape | None = None
) -> list[Array]:
    """Q, K and V of one trial, each [batch, head, row, column] in `dtype`'s storage (see `dtypes`); K and V of
    `kv_shape`, where that is another.

    independent: three independent tensors. shared_qkv: the three are equal, so every row's largest logit
    is its own: a fault in the softmax's rescaling hides. Of other K and V, Q's rows are those of its head's K,
    in turn. large_logits: Q is eight times larger, so that the softmax is peaked and a wrong maximum overflows.

    Of experiments alone, each made from `independent`: steep_logits: Q is 64 times larger. dominant_tail: the last 16
    keys carry almost all weight, for every row. offset_logits: all logits are larger by one number, which changes no
    weight; unscaled, they do not fit into float16. flat_logits: Q is 64 times smaller. constant_v: all rows of V are
    its first, and so is every output. zero_q: Q is zero, all weights are equal, and every output is a mean of V.
    halved_4 and halved_8: the three are halved so many times.
    """
    kv_shape = kv_shape or shape

    def drawn(index: int, own: Shape) -> Array:
        return deviates(seed, trial, index, int(np.prod(own)), each).reshape(own)

    if recipe == "shared_qkv":
        k = _encoded(drawn(0, kv_shape), dtype, each)
        q = k.repeat(shape[1] // kv_shape[1], axis=1)[:, :, np.arange(shape[2]) % kv_shape[2]]
        return [np.ascontiguousarray(q), k, k.copy()]
    if recipe not in CHANGES:
        raise ValueError(f"unknown input recipe: {recipe!r}")
    values = [drawn(index, own) for index, own in enumerate((shape, kv_shape, kv_shape))]
    CHANGES[recipe](*values)
    return [_encoded(tensor, dtype, each) for tensor in values]


def mask(recipe: str, dtype: str, shape: Shape, seed: int, trial: int, each: Each = map) -> Array:
    """Return what of [batch, 1, rows, keys] is seen, as booleans; of `bias` what is added to the logits, in `dtype`'s
    storage.

    padding: each sequence has a length of its own, below the number of keys where it can be, and the keys after it are
    hidden. random: half of all pairs are hidden, and each row sees one key at least. empty_rows: the same, and every
    eighth row, the last one among them, sees none. bias: approximately normal numbers.
    """
    batch, _, rows, keys = shape
    if recipe == "padding":
        lengths = 1 + stream(seed, trial, MASK, 0).random_raw(batch) % np.uint64(max(1, keys - 1))
        seen = np.arange(keys) < lengths[:, None, None, None]
        return np.ascontiguousarray(np.broadcast_to(seen, shape))
    values = deviates(seed, trial, MASK, int(np.prod(shape)), each).reshape(shape)
    if recipe == "bias":
        return _encoded(values, dtype, each)
    seen = values > 0
    seen[:, :, np.arange(rows), np.arange(rows) % keys] = True
    if recipe == "empty_rows":
        seen[:, :, (rows - 1) % EMPTY :: EMPTY] = False
    return seen


def direction(dtype: str, shape: Shape, seed: int, trial: int, each: Each = map) -> Array:
    """Return what gradients are taken along: approximately normal numbers in `dtype`'s storage. Along ones, as those of
    a sum, the gradient of a softmax vanishes."""
    return _encoded(deviates(seed, trial, DIRECTION, int(np.prod(shape)), each).reshape(shape), dtype, each)


def keep(dropout: float, shape: Shape, seed: int, trial: int, each: Each = map) -> Array:
    """The draws of dropout with that probability, for [batch, heads, rows, keys]: true where a weight is kept."""
    result = np.empty(int(np.prod(shape)), bool)
    least = np.uint64(int(dropout * 2.0**64))

    def draw(first: int) -> None:
        size = min(PART, len(result) - first)
        result[first : first + size] = stream(seed, trial, KEEP, first).random_raw(size) >= least

    list(each(draw, range(0, len(result), PART)))
    return result.reshape(shape)


def _encoded(values: Array, dtype: str, each: Each) -> Array:
    """`dtypes.encode` of a whole array, by parts as `deviates` makes them."""
    result = np.empty(values.shape, dtypes.STORAGE[dtype])
    source, target = values.reshape(-1), result.reshape(-1)

    def encode(first: int) -> None:
        target[first : first + PART] = dtypes.encode(source[first : first + PART], dtype)

    list(each(encode, range(0, len(source), PART)))
    return result


def _times(factor: float, tensors: int) -> Callable[..., None]:
    """The first so many tensors times a factor."""

    def change(*qkv: Array) -> None:
        for tensor in qkv[:tensors]:
            tensor *= np.float32(factor)

    return change


def _dominant_tail(q: Array, k: Array, _v: Array) -> None:
    q[..., 0] = TAIL
    k[..., 0] = 0
    k[..., -TAIL_KEYS:, 0] = TAIL


def _offset_logits(q: Array, k: Array, _v: Array) -> None:
    # Last, where it costs a sum least: what is added to so large a number is rounded to a 128th.
    q[..., -1] = OFFSET
    k[..., -1] = OFFSET


def _constant_v(_q: Array, _k: Array, v: Array) -> None:
    v[...] = v[..., :1, :].copy()


def _zero_q(q: Array, _k: Array, _v: Array) -> None:
    q[...] = 0


# In place, on float32, and exact: by powers of two, and by what every dtype holds.
CHANGES: Mapping[str, Callable[..., None]] = {
    "independent": _times(1.0, 0),
    "large_logits": _times(LARGE, 1),
    "steep_logits": _times(STEEP, 1),
    "dominant_tail": _dominant_tail,
    "offset_logits": _offset_logits,
    "flat_logits": _times(1 / STEEP, 1),
    "constant_v": _constant_v,
    "zero_q": _zero_q,
    **{recipe: _times(2.0**-halvings, 3) for recipe, halvings in protocol.SCALED_RECIPES.items()},
}


def digest(arrays: Iterable[Array]) -> str:
    """SHA-256, in hex, over the bytes of all input tensors."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()
