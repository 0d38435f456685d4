"""The arithmetic that attention's error scale is measured by (`rounding`): every operation is rounded correctly.

* logits rounded to float32, their largest subtracted, the exponential rounded to float32;
* float16 and bfloat16: these weights rounded to the dtype before they meet V, as matrix units demand, and
  summed before that rounding; sums exact, because the error of a float32 accumulator is hundreds of times
  smaller than the rounding of the operands;
* float32: every sum is a float32 accumulator that takes its products one by one, in index order. Here the
  accumulators are nearly the whole error: without them PyTorch's own backends stand at 4 to 12 units; of products
  that are declared as three of TF32 what these are off by is added (`rounding.three_products`);
* the output rounded to the dtype.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Callable

import numpy as np

from . import dtypes
from .rounding import sum_error, three_products

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape

    Draw = Callable[[Shape], Array]  # gives deviates of a shape
    Product = Callable[..., Array]  # of two matrices
    Operand = Callable[[Array], Array]  # what is done to each operand of a product
    Add = Callable[[Array, Array, Array], None]  # a product to a sum, as `accumulate`


def unchanged(array: Array) -> Array:
    return array


def emulate(
    queries: Array,
    keys: Array,
    values: Array,
    scale: float,
    hidden: Array | None,
    bias: Array | None = None,
    kept: Array | None = None,
    *,
    dtype: str,
    sums: Draw | None = None,
) -> Array:
    """Half types: Q [rows, D], K [keys, D], V [keys, columns] to outputs in float64; True in `hidden` masks, and `bias`
    is added to the logits. `kept`, of dropout, are factors of the weights once they are summed.

    `sums`, of declared float16 accumulators, draws their errors (see `sum_error`).
    """
    times = functools.partial(product, sums=sums)
    logits = half_logits(queries, keys, scale, hidden, bias, times)
    weights = exponential(logits - logits.max(axis=1, keepdims=True))
    total = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    weights = dtypes.quantise(weights if kept is None else weights * kept, dtype)
    return dtypes.quantise(times(weights, values) / total, dtype)


def half_logits(
    queries: Array, keys: Array, scale: float, hidden: Array | None, bias: Array | None, times: Product
) -> Array:
    """Logits [rows, keys], in float32."""
    logits = times(queries, keys.T)
    logits *= scale
    if bias is not None:
        logits += bias
    if hidden is not None:
        logits[hidden] = -np.inf
    return logits.astype(np.float32)


def exponential(values: Array) -> Array:
    """Of float32, in float32."""
    found: Array = np.exp(values.astype(np.float64)).astype(np.float32)
    return found


def product(left: Array, right: Array, sums: Draw | None, terms: int = 0) -> Array:
    """Exactly, or with the errors of float16 accumulators; `terms`: of the whole sum, where this is a part of it."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    found: Array = left @ right
    if sums:
        squares = np.square(left) @ np.square(right)
        unit = dtypes.UNIT_ROUNDOFF["float16"]
        found += sum_error(squares, found, terms or left.shape[1], unit) * sums(found.shape)
    return found


def accumulate(total: Array, left: Array, right: Array) -> None:
    """Adds left [terms, m] ^T right [terms, n] to `total` [m, n] float32, product by product."""
    product, right = np.empty_like(total), np.ascontiguousarray(right)
    for column, row in zip(left, right):
        np.multiply(column[:, None], row, out=product)
        total += product


def accumulate_thrice(total: Array, left: Array, right: Array) -> None:
    """The same, of three products of TF32 parts."""
    accumulate(total, left, right)
    total += three_products(left.T, right)


def emulate_single(
    queries: Array,
    keys: Array,
    values: Array,
    scale: float,
    hidden: Array | None,
    bias: Array | None = None,
    kept: Array | None = None,
    *,
    operand: Operand = unchanged,
    add: Add = accumulate,
) -> Array:
    """Float32: Q [rows, D], K [keys, D], V [keys, columns] to outputs in float64; `hidden`, `bias` and `kept` as above.
    `add` is of matrix products; other sums are `accumulate`'s.

    Transposed inside, so that the innermost loops run over rows, which are contiguous.
    """
    logits = single_logits(queries, keys, scale, hidden, bias, operand, add)
    weights = exponential(logits - logits.max(axis=0))
    entering = operand(weights if kept is None else weights * kept.T.astype(np.float32))
    total = np.zeros((1, len(queries)), np.float32)
    output = np.zeros((values.shape[1], len(queries)), np.float32)
    add(output, operand(values), entering)
    accumulate(total, np.ones((len(keys), 1), np.float32), weights)
    result: Array = (output / total).T.astype(np.float64)
    return result


def single_logits(
    queries: Array, keys: Array, scale: float, hidden: Array | None, bias: Array | None, operand: Operand, add: Add
) -> Array:
    """Logits [keys, rows]."""
    logits = np.zeros((len(keys), len(queries)), np.float32)
    add(logits, operand(keys).T, operand(queries).T)
    logits *= np.float32(scale)
    if bias is not None:
        logits += bias.T
    if hidden is not None:
        logits[hidden.T] = -np.inf
    return logits
