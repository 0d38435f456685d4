"""The yardstick: what rounding costs a faultless attention, on this very input, in this dtype.

No kernel can be closer to the truth than its arithmetic allows, and how close that is depends on the dtype,
the length and the logits. So the error of a target is measured in units of the error that a plain, faultless
attention makes on the same input, every one of whose operations is rounded correctly:

* logits rounded to float32, their largest subtracted, the exponential rounded to float32;
* float16 and bfloat16: these weights rounded to the dtype before they meet V, as matrix units demand, and
  summed before that rounding; sums exact, because the error of a float32 accumulator is hundreds of times
  smaller than the rounding of the operands;
* float32: every sum is a float32 accumulator that takes its products one by one, in index order. Here the
  accumulators are nearly the whole error: without them PyTorch's own backends stand at 4 to 12 units;
* the output rounded to the dtype.

Error of an output: over all rows, the largest of max |output - truth| / max |truth| of the row. One unit, the
cost, is this error of the emulated attention, and at least one unit roundoff. The cost is a property of the
input: it depends on neither PyTorch nor the device, so the yardstick is the same in every environment.
"""

import numpy as np

from . import dtypes

FLOOR = 2.0**-10  # of the tensor's largest value: no row counts as smaller than that


def emulate(logits, values, dtype):
    """Half types: float64 logits [rows, keys], masked ones -inf, and V [keys, columns] to outputs in float64."""
    rounded = logits.astype(np.float32)
    weights = np.exp((rounded - rounded.max(axis=1, keepdims=True)).astype(np.float64)).astype(np.float32)
    total = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    return dtypes.quantise((dtypes.quantise(weights, dtype) @ values) / total, dtype)


def emulate_single(queries, keys, values, scale, hidden):
    """Float32: Q [rows, D], K [keys, D], V [keys, columns] to outputs in float64; True in `hidden` masks.

    Transposed inside, so that the innermost loops run over rows, which are contiguous.
    """
    left = np.ascontiguousarray(queries.T)
    logits = np.zeros((len(keys), len(queries)), np.float32)
    product = np.empty_like(logits)
    for index in range(keys.shape[1]):
        np.multiply(keys[:, index, None], left[index], out=product)
        logits += product
    logits *= np.float32(scale)
    if hidden is not None:
        logits[hidden.T] = -np.inf
    logits -= logits.max(axis=0)
    weights = np.exp(logits.astype(np.float64)).astype(np.float32)
    total = np.zeros(len(queries), np.float32)
    output = np.zeros((values.shape[1], len(queries)), np.float32)
    product = np.empty_like(output)
    for index in range(len(keys)):
        np.multiply(values[index, :, None], weights[index], out=product)
        output += product
        total += weights[index]
    return (output / total).T.astype(np.float64)


def row_scales(truth):
    """The largest magnitude of each row (the last axis); 1 where the whole truth is zero."""
    scales = np.abs(truth).max(axis=-1)
    largest = scales.max() if scales.size else 0.0
    return np.maximum(scales, largest * FLOOR) if largest > 0 else np.ones_like(scales)


def error(difference, scales):
    """Largest row error from |output - truth|; NaN where an element is NaN."""
    return float((difference.max(axis=-1) / scales).max()) if difference.size else 0.0


def cost(emulated, truth, dtype):
    """One unit: the error of the emulated output, at least one unit roundoff of the dtype."""
    return max(error(np.abs(emulated - truth), row_scales(truth)), dtypes.UNIT_ROUNDOFF[dtype])
