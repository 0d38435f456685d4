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

import hashlib

import numpy as np

from . import dtypes

TENSORS = ("q", "k", "v")
UNIFORMS = 12
LARGE = 8.0  # factor on Q in `large_logits`: logits spread by 8, so that few keys carry each row
LANES = np.uint64(0x0000FFFF0000FFFF)
AT_ONCE = 1 << 15  # deviates made at a time: their words stay in a processor's cache


def deviates(seed, trial, tensor, count):
    """`count` approximately normal float32 deviates of the stream (seed, trial, tensor); exact, portable."""
    # Deviate i has the words i, count + i and 2 count + i: three places in one stream, read side by side.
    streams = [_stream(seed, trial, tensor, part * count) for part in range(3)]
    result = np.empty(count, np.float32)
    for start in range(0, count, AT_ONCE):
        size = min(AT_ONCE, count - start)
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
    return result


def _stream(seed, trial, tensor, word):
    """The generator of (seed, trial, tensor), before its word of that number. One step of its counter is four words."""
    generator = np.random.Philox(
        key=np.array([seed, 0], dtype=np.uint64), counter=np.array([0, 0, trial, tensor], dtype=np.uint64)
    )
    generator.advance(word // 4)
    generator.random_raw(word % 4)
    return generator


def generate(recipe, dtype, shape, seed, trial):
    """Q, K and V of one trial, each [batch, head, row, column] in `dtype`'s storage (see `dtypes`).

    independent: three independent tensors. shared_qkv: the three are equal, so every row's largest logit
    is its own: a fault in the softmax's rescaling hides. large_logits: Q is eight times larger, so that
    the softmax is peaked and a wrong maximum overflows.
    """
    count = int(np.prod(shape))
    q = deviates(seed, trial, 0, count)
    if recipe == "shared_qkv":
        first = dtypes.encode(q, dtype).reshape(shape)
        return first, first.copy(), first.copy()
    if recipe == "large_logits":
        q = q * np.float32(LARGE)
    elif recipe != "independent":
        raise ValueError(f"unknown input recipe: {recipe!r}")
    rest = (deviates(seed, trial, index, count) for index in (1, 2))
    return tuple(dtypes.encode(values, dtype).reshape(shape) for values in (q, *tuple(rest)))


def digest(arrays):
    """SHA-256, in hex, over the bytes of all input tensors."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()
