"""Half types: what is added up in the output itself, with each partial sum rounded to its dtype.

A product of matrices, a sum or a mean keeps its running sum in a register of float32. Where several places of the input
meet in one of the output, the sum is the output's element: overlapping windows (col2im, of a transposed convolution or
of a convolution's gradient), gradients of an embedding or of an indexed tensor, samples of a batch in the gradient of a
weight. PyTorch adds these in the dtype, on the CPU by loops and on GPUs by atomic additions.

A function here is given an `arithmetic.Call`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch

from . import dtypes, rounding, tensors

if TYPE_CHECKING:
    from .arithmetic import Call

    Terms = Callable[[Call, Sequence[Any]], Sequence[float]]  # for each result, how many meet in an element


def added(call: Call, found: Any) -> Any:
    """The operator's results, each with the error of adding what meets in its elements one by one."""
    count = TERMS.get(call.name)
    if count is None or call.mode.draws is None or call.unit or call.dtype not in (torch.float16, torch.bfloat16):
        return found
    terms, unit = iter(count(call, list(tensors.flat([found])))), dtypes.UNIT_ROUNDOFF[str(call.dtype)[len("torch.") :]]
    return tensors.each_float(found, lambda total: _erring(call, total, next(terms), unit))


def _erring(call: Call, total: Any, terms: float, unit: float) -> Any:
    """What is added may be of either sign: its squares sum up to those of the totals, on average."""
    if terms < 2 or not total.numel():
        return total
    error = rounding.sum_error(total.square().mean(), total, terms, unit)
    return total + error.mul_(call.draws.deviates(total))


def _by_size(call: Call, results: Sequence[Any]) -> Sequence[float]:
    """As many as there are elements of the input to one of the output."""
    taken = max(value.numel() for value in tensors.flat((call.args, call.kwargs)))
    return [taken / max(1, result.numel()) for result in results]


def _reduced(call: Call, results: Sequence[Any]) -> Sequence[float]:
    return _by_size(call, results) if call.args[4] in ("sum", "mean") else [1]


def _indexed(call: Call, results: Sequence[Any]) -> Sequence[float]:
    accumulates = len(call.args) > 3 and call.args[3]
    return [call.args[2].numel() / max(1, results[0].numel()) if accumulates else 1]


def met(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many windows of these sizes overlap in one place. `strides`: one for each size, or one of all; empty: the
    sizes."""
    if len(strides) == 1:
        strides = list(strides) * len(sizes)
    return math.prod(-(-size // step) for size, step in zip(sizes, strides or sizes))


def _pooled(call: Call, results: Sequence[Any]) -> Sequence[float]:
    return [met(call.args[2], call.args[3])]


def _transposed(call: Call, results: Sequence[Any]) -> Sequence[float]:
    weight, stride, transposed = call.args[1], call.args[3], call.args[6]
    return [met(weight.shape[2:], stride) if transposed else 1]


def _convolution_backward(call: Call, results: Sequence[Any]) -> Sequence[float]:
    """Of the data, the weight and the bias, as far as they were asked for."""
    gradient, _, weight, _, stride, _, _, transposed, *_, wanted = call.args
    samples = gradient.shape[0]
    terms = (1 if transposed else met(weight.shape[2:], stride), samples, samples)
    return [count for count, asked in zip(terms, wanted) if asked]


def _grouped(call: Call, results: Sequence[Any]) -> Sequence[float]:
    """Of the weight and the bias, whose gradients are summed for each sample first."""
    samples = call.args[0].shape[0]
    return [1 if result.dim() > 1 else samples for result in results]


TERMS: dict[str, Terms] = {
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _transposed),
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(("avg_pool2d_backward", "avg_pool3d_backward"), _pooled),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"), _pooled),
    **dict.fromkeys(("index_put", "_index_put_impl"), _indexed),
    **dict.fromkeys(("col2im", "unfold_backward", "index_add", "scatter_add"), _by_size),
    "scatter_reduce": _reduced,
    **dict.fromkeys(("embedding_dense_backward", "_embedding_bag_dense_backward"), _by_size),
    **dict.fromkeys(("native_layer_norm_backward", "prod"), _by_size),
    "native_group_norm_backward": _grouped,
}
