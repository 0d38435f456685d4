"""The I/O dtypes in numpy, which has no bfloat16: arrays of that dtype are held as their bits, in uint16."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Iterable, Mapping

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# A problem file's inputs may also be indices and masks.
PLAIN = ("float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64")
STORAGE: Mapping[str, np.dtype[Any]] = {"bfloat16": np.dtype("uint16"), **{name: np.dtype(name) for name in PLAIN}}

C_INTERFACE = {"float16": 0, "bfloat16": 1, "float32": 2}  # the enumeration of csrc/attention.h

# Half the distance between 1 and the next number: the largest relative error of one correct rounding.
FLOATING = ("float16", "bfloat16", "float32", "float64")
UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}

# The least magnitude that rounds to infinity.
OVERFLOW = {"float16": 65520.0, "bfloat16": (2 - 2.0**-8) * 2.0**127, "float32": (2 - 2.0**-24) * 2.0**127}


def encode(values: Array, dtype: str) -> Array:
    """Float32 or float64 values in `dtype`, rounded once, to nearest, ties to even; NaN stays NaN."""
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):  # beyond float16's range is infinity, as it should be
            stored: Array = values.astype(STORAGE[dtype])
        return stored
    if values.dtype == np.float64:
        # Through float32 it would be rounded twice: first cut the significand to bfloat16's 8 bits.
        wide = values.view(np.uint64)
        wide = wide + (np.uint64((1 << 44) - 1) + ((wide >> np.uint64(45)) & np.uint64(1)))
        rounded = (wide & ~np.uint64((1 << 45) - 1)).view(np.float64)
        with np.errstate(over="ignore"):
            values = np.where(np.isfinite(values), rounded, values).astype(np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    # The carry of the rounding would turn some NaN into an infinity or a zero.
    kept: Array = np.where(np.isnan(values), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)
    return kept


def decode(array: Array, dtype: str) -> Array:
    """An array held in `dtype`, exactly: half types as float32, float32 itself, all others as float64."""
    values: Array
    if dtype == "bfloat16":
        values = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return values
    values = array.astype(np.float32 if dtype in UNIT_ROUNDOFF else np.float64, copy=False)
    return values


def quantise(values: Array, dtype: str) -> Array:
    """Float64 values rounded to `dtype`, as float64."""
    return decode(encode(values, dtype), dtype).astype(np.float64)


def from_bytes(data: bytes, dtype: str, shape: Iterable[int]) -> Array:
    """The array that the bytes hold, read-only; ValueError where their number does not fit."""
    return np.frombuffer(data, dtype=STORAGE[dtype]).reshape(tuple(shape))


def size_bytes(dtype: str, shape: Iterable[int]) -> int:
    return math.prod(shape) * int(STORAGE[dtype].itemsize)
