"""Operators that add many terms: the error of adding them one by one, and sums that lack some of their terms.

A function here is given an `arithmetic.Call` and returns what the operator gives; None leaves it to the operator.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple

import numpy as np
import torch

from . import rounding, scattered
from .arithmetic import THIRD

if TYPE_CHECKING:
    from .arithmetic import Call

    Affine = Callable[[Sequence[Any]], Sequence[Any]]
    Arrange = Callable[[Sequence[Any]], Optional[Tuple[Any, float, Callable[[Any], Any]]]]
    Special = Callable[[Call], Any]


def special(call: Call) -> Any:
    """The operator's result where it adds terms, and that matters here; else None."""
    if not call.unit and not call.mode.short and (call.mode.draws is None or call.name not in STORED):
        return None
    known = PRODUCTS.get(call.name) or SUMS.get(call.name)
    return known(call) if known else None


def _product(left: int, right: int) -> Special:
    """Of matrices, or vectors, which stand at these places among the arguments."""

    def run(call: Call) -> Any:
        args = list(call.args)
        terms = args[left].shape[-1]
        lacking = call.lacking(terms)
        if lacking:
            args[left] = args[left].clone()
            args[left][..., terms - lacking :] = 0
        total = call.function(*args, **call.kwargs)
        if call.mode.splits and call.dtype == torch.float32:
            total = total + _of_three(args[left].detach().numpy(), args[right].detach().numpy())
        return call.erring(total, lambda: _squared(torch.matmul, args[left], args[right]), terms)

    return run


def _of_three(left: Any, right: Any) -> Any:
    """`rounding.three_products`, of one matrix of a batch at a time."""
    if left.ndim < 3:
        return torch.from_numpy(np.asarray(rounding.three_products(left, right)))
    return torch.from_numpy(np.stack([rounding.three_products(*pair) for pair in zip(left, right)]))


def _convolution(call: Call) -> Any:
    data, weight, _, stride, *_, transposed, _, groups = args = list(call.args)
    taps = weight[0, 0].numel()
    if transposed:  # [in, out / groups, taps], of which an output meets some
        terms = weight.shape[0] // groups * scattered.met(weight.shape[2:], stride)
    else:
        terms = weight.shape[1] * taps
    lacking = call.lacking(terms)
    if lacking:
        args[1] = weight = weight.clone()
        if transposed:
            weight[-1].view(weight.shape[1], -1)[:, -1] = 0
            weight[weight.shape[0] - weight.shape[0] * lacking // terms :] = 0
        else:
            weight.view(weight.shape[0], -1)[:, terms - lacking :] = 0
    total = call.function(*args, **call.kwargs)
    return call.erring(total, lambda: _squared(lambda a, b: call.function(a, b, None, *args[3:]), data, weight), terms)


def _convolution_backward(call: Call) -> Any:
    """Gradients of the data, of the weight and of the bias: each a sum of products of two of what is given."""
    gradient, data, weight, *rest = call.args
    found = call.function(*call.args, **call.kwargs)
    if not call.unit:
        return found
    squares = call.function(gradient.square(), data.square(), weight.square(), *rest, **call.kwargs)
    outputs = gradient.numel() // gradient.shape[1]
    terms = gradient.shape[1] * weight[0, 0].numel(), outputs, outputs
    return tuple(
        total if total is None else call.erring(total, partial(tuple.__getitem__, squares, at), terms[at])
        for at, total in enumerate(found)
    )


def _squared(multiply: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """`multiply` of the operands' squares: float32 is enough, but for its range."""
    found = multiply(left.float().square(), right.float().square())
    return found if torch.isfinite(found).all() else multiply(left.double().square(), right.double().square())


def _sum(call: Call) -> Any:
    values = call.args[0]
    total = call.function(*call.args, **call.kwargs)
    terms = values.numel() // max(1, total.numel())
    lacking = call.lacking(terms)
    if lacking:
        values = _without_tail(values, _axes(call, values), lacking / terms)
        total = call.function(values, *call.args[1:], **call.kwargs)
    over = 1 if call.name == "sum" else terms  # the mean of squares over K, and the mean: both sums over K
    return call.erring(total, lambda: call.function(values.square(), *call.args[1:], **call.kwargs) / over, terms)


def _axes(call: Call, values: Any) -> list[int]:
    given = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim")
    if given is None or isinstance(given, torch.dtype) or given == []:
        return list(range(values.dim()))
    return [axis % max(1, values.dim()) for axis in ([given] if isinstance(given, int) else given)]


def _without_tail(values: Any, axes: list[int], share: float) -> Any:
    """A copy whose last share of the longest of these axes is zero; the very last element alone for a small share."""
    values = values.clone()
    longest = max(axes, key=lambda axis: values.shape[axis])
    count = int(values.shape[longest] * share)
    place = [slice(None)] * int(values.dim())
    for axis in axes:
        place[axis] = slice(-1, None) if count == 0 or axis == longest else place[axis]
    if count:
        place[longest] = slice(values.shape[longest] - count, None)
    values[tuple(place)] = 0
    return values


def _pool(call: Call) -> Any:
    """An average of neighbours: no terms are dropped."""
    total = call.function(*call.args, **call.kwargs)
    if not call.unit:
        return total
    window = call.args[1]
    if "adaptive" in call.name:
        terms = call.args[0].numel() // max(1, total.numel())
    else:
        terms = math.prod(window) if len(window) > 1 else window[0] ** (total.dim() - 2)
    return call.erring(
        total, lambda: call.function(call.args[0].square(), *call.args[1:], **call.kwargs) / terms, terms
    )


def _running(call: Call) -> Any:
    total = call.function(*call.args, **call.kwargs)
    if not call.unit:
        return total
    axis = call.args[1]
    errors = call.draws.deviates(total).mul_(call.unit / THIRD)
    if call.name == "cumprod":
        return total * (1 + errors.cumsum(axis))
    return total + (errors * total).cumsum(axis)


def _softmax(call: Call) -> Any:
    """The sum below errs, or lacks its last terms; of the logarithm by a difference."""
    found = call.function(*call.args, **call.kwargs)
    axis, logarithm = call.args[1], call.name == "_log_softmax"
    terms = found.shape[axis] if found.dim() else 1
    lacking = call.lacking(terms)
    if lacking:
        tail = found.narrow(axis, terms - lacking, lacking)
        left = 1 - (tail.exp() if logarithm else tail).sum(axis, keepdim=True)
        found = found - left.log() if logarithm else found / left
    if call.unit and terms > 1:
        error = call.draws.deviates(found.narrow(axis, 0, 1)).mul_(call.unit / THIRD * (terms / 3) ** 0.5)
        found = found - error if logarithm else found * (1 - error)
    return found


def _normalised(arrange: Arrange, affine: Affine, stored: bool = False) -> Special:
    """Mean and variance of groups. `arrange` views the input as [groups, terms]; `affine` views a weight beside it."""

    def run(call: Call) -> Any:
        arranged = arrange(call.args)
        if arranged is None:
            return None
        values, eps, restore = arranged
        terms = values.shape[1]
        lacking = call.lacking(terms)
        kept = values[:, : terms - lacking]
        mean = call.erring(kept.sum(1), lambda: kept.square().sum(1), terms) / terms
        # As x * scale - mean * scale, which many kernels compute, what is multiplied is rounded before it cancels.
        centred = (call.draws.moved(values.clone(), call.unit) if call.unit else values) - mean[:, None]
        variance = centred[:, : terms - lacking].square().sum(1) / terms
        if call.unit:
            variance *= 1 + call.draws.deviates(variance) * (call.unit / THIRD * (terms / 3) ** 0.5)
        scale = (variance + eps).rsqrt()
        if stored:  # statistics are tensors of the dtype: PyTorch keeps them so on the CPU
            kept_mean, scale = (value.to(call.dtype).to(values.dtype) for value in (mean, scale))
            centred += (mean - kept_mean)[:, None]
        found = restore(centred.mul_(scale[:, None]))
        weight, bias = affine(call.args)
        if weight is not None:
            found = found * weight
        if bias is not None:
            found = found + bias
        mean, scale = (value.view(_statistics(call.name, call.args) or value.shape) for value in (mean, scale))
        return (found, mean, scale, *(call.args[0].new_empty(0) for _ in call.function._schema.returns[3:]))

    return run


def _statistics(name: str, args: Sequence[Any]) -> tuple[int, ...]:
    """The shape of the means that an operator returns; (): of one dimension."""
    if name == "native_layer_norm":
        ones = (1,) * len(args[1])
        return (*args[0].shape[: -len(ones)], *ones)
    return (args[3], args[6]) if name == "native_group_norm" else ()


def _layer(args: Sequence[Any]) -> tuple[Any, float, Callable[[Any], Any]]:
    values, shape = args[0], args[1]
    return values.reshape(-1, math.prod(shape)), args[4], lambda found: found.view(values.shape)


def _group(args: Sequence[Any]) -> tuple[Any, float, Callable[[Any], Any]]:
    values = args[0]
    return values.reshape(args[3] * args[6], -1), args[7], lambda found: found.view(values.shape)


def _batch(args: Sequence[Any]) -> tuple[Any, float, Callable[[Any], Any]] | None:
    values, flags = args[0], [value for value in args[1:] if isinstance(value, bool)]
    if flags and not flags[0]:
        return None  # the running statistics: nothing is added up
    eps = [value for value in args if isinstance(value, float)][-1]
    turned = values.transpose(0, 1)
    return turned.reshape(values.shape[1], -1), eps, lambda found: found.view(turned.shape).transpose(0, 1)


def _by_channel(args: Sequence[Any]) -> list[Any]:
    shape = [1, -1] + [1] * (args[0].dim() - 2)
    return [None if value is None else value.view(shape) for value in args[1:3]]


def summed(call: Call, result: Any) -> Any:
    """What is much smaller than what it was made of adds that up, whatever it is: with the error of a sum of one sign.
    None where it is not."""
    taken = max((value.numel() for value in call.args if isinstance(value, torch.Tensor)), default=0)
    if not 0 < 2 * result.numel() <= taken:
        return None
    errors = call.draws.deviates(result).mul_(call.unit / THIRD * (taken / result.numel() / 3) ** 0.5)
    return result + errors if call.name == "logsumexp" else result * (1 + errors)


STORED = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), _product(0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _product(1, 2)),
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(("convolution", "convolution_overrideable", "_convolution"), _convolution),
}
SUMS = {
    "sum": _sum,
    "mean": _sum,
    "nansum": _sum,
    "cumsum": _running,
    "cumprod": _running,
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    **dict.fromkeys(("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _pool),
    "native_layer_norm": _normalised(_layer, lambda args: args[2:4]),
    "native_group_norm": _normalised(_group, _by_channel),
    **dict.fromkeys(STORED, _normalised(_batch, _by_channel, stored=True)),
}
