"""The arithmetic that attention's error scale is measured by (`rounding`): every operation is rounded correctly.

* logits rounded to float32, their largest subtracted, the exponential rounded to float32;
* float16 and bfloat16: these weights rounded to the dtype before they meet V, as matrix units demand, and
  summed before that rounding; sums exact, because the error of a float32 accumulator is hundreds of times
  smaller than the rounding of the operands;
* float32: every sum is a float32 accumulator that takes its products one by one, in index order. Here the
  accumulators are nearly the whole error: without them PyTorch's own backends stand at 4 to 12 units;
* the output rounded to the dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from . import dtypes
from .rounding import sum_error

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape

    Draw = Callable[[Shape], Array]  # gives deviates of a shape
    Operand = Callable[[Array], Array]  # what is done to each operand of a product


def emulate(
    queries: Array, keys: Array, values: Array, scale: float, hidden: Array | None, bias: Array | None = None,
    kept: Array | None = None, *, dtype: str, sums: Draw | None = None,
) -> Array:  # fmt: skip
    """Half types: Q [rows, D], K [keys, D], V [keys, columns] to outputs in float64; True in `hidden` masks, and `bias`
    is added to the logits. `kept`, of dropout, are factors of the weights once they are summed.

    `sums`, of declared float16 accumulators, draws their errors (see `sum_error`).
    """
    exact = values.astype(np.float64)
    queries, keys = queries.astype(np.float64), keys.astype(np.float64)
    logits = queries @ keys.T
    if sums:
        squares = np.square(queries) @ np.square(keys).T
        logits += sum_error(squares, logits, queries.shape[1], dtypes.UNIT_ROUNDOFF["float16"]) * sums(logits.shape)
    logits *= scale
    if bias is not None:
        logits += bias
    if hidden is not None:
        logits[hidden] = -np.inf
    rounded = logits.astype(np.float32)
    weights = np.exp((rounded - rounded.max(axis=1, keepdims=True)).astype(np.float64)).astype(np.float32)
    total = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    weights = dtypes.quantise(weights if kept is None else weights * kept, dtype)
    output = weights @ exact
    if sums:
        squares = np.square(weights) @ np.square(exact)
        output += sum_error(squares, output, len(keys), dtypes.UNIT_ROUNDOFF["float16"]) * sums(output.shape)
    return dtypes.quantise(output / total, dtype)


def emulate_single(
    queries: Array, keys: Array, values: Array, scale: float, hidden: Array | None, bias: Array | None = None,
    kept: Array | None = None, *, operand: Operand | None = None,
) -> Array:  # fmt: skip
    """Float32: Q [rows, D], K [keys, D], V [keys, columns] to outputs in float64; `hidden`, `bias` and `kept` as above.

    Transposed inside, so that the innermost loops run over rows, which are contiguous.
    """
    operand = operand or (lambda array: array)
    queries, keys, values = operand(queries), operand(keys), operand(values)
    left = np.ascontiguousarray(queries.T)
    logits = np.zeros((len(keys), len(queries)), np.float32)
    product = np.empty_like(logits)
    for index in range(keys.shape[1]):
        np.multiply(keys[:, index, None], left[index], out=product)
        logits += product
    logits *= np.float32(scale)
    if bias is not None:
        logits += bias.T
    if hidden is not None:
        logits[hidden.T] = -np.inf
    logits -= logits.max(axis=0)
    weights = np.exp(logits.astype(np.float64)).astype(np.float32)
    entering = operand(weights if kept is None else weights * kept.T.astype(np.float32))
    total = np.zeros(len(queries), np.float32)
    output = np.zeros((values.shape[1], len(queries)), np.float32)
    product = np.empty_like(output)
    for index in range(len(keys)):
        np.multiply(values[index, :, None], entering[index], out=product)
        output += product
        total += weights[index]
    result: Array = (output / total).T.astype(np.float64)
    return result
