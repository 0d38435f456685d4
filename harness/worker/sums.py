"""How far operators err beyond one rounding: sums in float32, sums that an output itself holds, and factorisations.

Straightforward arithmetic adds K terms one by one. For most operators K is the number of elements read for each
element written; products of matrices, convolutions, windows and normalisations say it themselves.

Half types keep the running sum of a product, a sum or a mean in a register of float32. Where several places of the
input meet in one of the output, the sum is the output's element: overlapping windows (col2im, a transposed convolution,
a convolution's gradient), gradients of an embedding or of an indexed tensor, samples of a batch in the gradient of a
weight. PyTorch adds these in the dtype, on the CPU by loops and on GPUs by atomic additions.

Functions here are given an `arithmetic.Call`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

import numpy as np
import torch

from . import dtypes, rounding, tensors
from .arithmetic import THIRD

if TYPE_CHECKING:
    from .arithmetic import Call

    Special = Callable[[Call], Any]

HALF = (torch.float16, torch.bfloat16)


def add_terms(call: Call) -> Any:
    """Return what an operator that adds terms gives, with the error of that; None where it adds none, or where the
    error does not matter."""
    if not call.unit and (call.mode.draws is None or call.name not in STORED):
        return None
    known = ADDING.get(call.name)
    return known(call) if known else None


# -- products ---------------------------------------------------------------------------------------------


def _product(left: int, right: int) -> Special:
    """Return the function for a product of matrices, or vectors, which stand at these places among the arguments."""

    def multiply(call: Call) -> Any:
        one, other = call.args[left], call.args[right]
        total = call.run()
        if call.mode.splits and call.dtype == torch.float32:
            total = total + _three_products(one.detach().numpy(), other.detach().numpy())
        return call.erring(total, lambda: _squared(torch.matmul, one, other), one.shape[-1])

    return multiply


def _three_products(left: Any, right: Any) -> Any:
    """Return `rounding.three_products`, of one matrix of a batch at a time."""
    if left.ndim < 3:
        return torch.from_numpy(np.asarray(rounding.three_products(left, right)))
    return torch.from_numpy(np.stack([rounding.three_products(*pair) for pair in zip(left, right)]))


def _convolution(call: Call) -> Any:
    data, weight, _, stride, *_, transposed, _, groups = call.args
    if transposed:  # [in, out / groups, taps], of which an output meets some
        terms = weight.shape[0] // groups * count_windows(weight.shape[2:], stride)
    else:
        terms = weight.shape[1] * weight[0, 0].numel()

    def convolve(one: Any, other: Any) -> Any:
        return call.function(one, other, None, *call.args[3:])

    return call.erring(call.run(), lambda: _squared(convolve, data, weight), terms)


def _convolution_backward(call: Call) -> Any:
    """Return gradients of the data, of the weight and of the bias: each a sum of products of two of the arguments."""
    gradient, data, weight, *rest = call.args
    squares = call.function(gradient.square(), data.square(), weight.square(), *rest, **call.kwargs)
    outputs = gradient.numel() // gradient.shape[1]
    terms = gradient.shape[1] * weight[0, 0].numel(), outputs, outputs
    return tuple(
        total if total is None else call.erring(total, partial(tuple.__getitem__, squares, at), terms[at])
        for at, total in enumerate(call.run())
    )


def _squared(multiply: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return `multiply` of the operands' squares: float32 is enough, but for its range."""
    found = multiply(left.float().square(), right.float().square())
    return found if torch.isfinite(found).all() else multiply(left.double().square(), right.double().square())


# -- sums -------------------------------------------------------------------------------------------------


def _sum(call: Call) -> Any:
    """Return a sum, or a mean, of all elements, of some axes or of windows."""
    values, total = call.args[0], call.run()
    terms = values.numel() // max(1, total.numel())
    if call.name in ("avg_pool2d", "avg_pool3d"):
        window = call.args[1]
        terms = math.prod(window) if len(window) > 1 else window[0] ** (total.dim() - 2)
    over = 1 if call.name == "sum" else terms  # the mean of squares over K, and the mean: both sums over K
    return call.erring(total, lambda: call.function(values.square(), *call.args[1:], **call.kwargs) / over, terms)


def _running(call: Call) -> Any:
    total, axis = call.run(), call.args[1]
    errors = call.draws.deviates(total).mul_(call.unit / THIRD)
    if call.name == "cumprod":
        return total * (1 + errors.cumsum(axis))
    return total + (errors * total).cumsum(axis)


def _softmax(call: Call) -> Any:
    """Return weights whose sum below errs; of the logarithm by a difference."""
    found, axis = call.run(), call.args[1]
    terms = found.shape[axis] if found.dim() else 1
    if terms < 2:
        return found
    error = call.draws.deviates(found.narrow(axis, 0, 1)).mul_(call.unit / THIRD * (terms / 3) ** 0.5)
    return found - error if call.name == "_log_softmax" else found * (1 - error)


def add_up(call: Call, result: Any) -> Any:
    """Return what is much smaller than what it was made of, whatever it is, with the error of a sum of one sign; None
    where it is not smaller."""
    taken = max((value.numel() for value in call.args if isinstance(value, torch.Tensor)), default=0)
    if not 0 < 2 * result.numel() <= taken:
        return None
    errors = call.draws.deviates(result).mul_(call.unit / THIRD * (taken / result.numel() / 3) ** 0.5)
    return result + errors if call.name == "logsumexp" else result * (1 + errors)


# -- normalisations ---------------------------------------------------------------------------------------


class Groups(NamedTuple):
    """What a normalisation works on: its input as [groups, terms], and what belongs to it."""

    values: Any
    eps: float
    restore: Callable[[Any], Any]  # to the input's shape
    affine: Sequence[Any]  # weight and bias beside the input, or None
    statistics: Sequence[int]  # the shape of the means that the operator returns


def _groups(call: Call) -> Groups | None:
    """Return the groups of a normalisation; None where it uses running statistics, and adds nothing up."""
    args = call.args
    data = args[0]
    by_channel = [1, -1] + [1] * (data.dim() - 2)
    affine = [None if value is None else value.view(by_channel) for value in args[1:3]] if call.name != LAYER else []
    if call.name == LAYER:
        shape = args[1]
        statistics = (*data.shape[: -len(shape)], *(1 for _ in shape))
        values = data.reshape(-1, math.prod(shape))
        return Groups(values, args[4], lambda found: found.view(data.shape), args[2:4], statistics)
    if call.name == GROUP:
        values = data.reshape(args[3] * args[6], -1)
        return Groups(values, args[7], lambda found: found.view(data.shape), affine, (args[3], args[6]))
    flags = [value for value in args[1:] if isinstance(value, bool)]
    if flags and not flags[0]:
        return None
    eps = [value for value in args if isinstance(value, float)][-1]
    turned = data.transpose(0, 1)
    values = turned.reshape(data.shape[1], -1)
    return Groups(values, eps, lambda found: found.view(turned.shape).transpose(0, 1), affine, (len(values),))


def _normalised(call: Call) -> Any:
    """Return a normalised input, with errors in the mean and the variance of its groups."""
    groups = _groups(call)
    if groups is None:
        return None
    values = groups.values
    terms = values.shape[1]
    mean = call.erring(values.sum(1), lambda: values.square().sum(1), terms) / terms
    # As x * scale - mean * scale, which many kernels compute, what is multiplied is rounded before it cancels.
    centred = (call.draws.moved(values.clone(), call.unit) if call.unit else values) - mean[:, None]
    variance = centred.square().sum(1) / terms
    if call.unit:
        variance *= 1 + call.draws.deviates(variance) * (call.unit / THIRD * (terms / 3) ** 0.5)
    scale = (variance + groups.eps).rsqrt()
    if call.name in STORED:  # statistics are tensors of the dtype: PyTorch keeps them so on the CPU
        kept_mean, scale = (value.to(call.dtype).to(value.dtype) for value in (mean, scale))
        centred += (mean - kept_mean)[:, None]
    found = groups.restore(centred.mul_(scale[:, None]))
    weight, bias = groups.affine
    if weight is not None:
        found = found * weight
    if bias is not None:
        found = found + bias
    mean, scale = (value.view(groups.statistics) for value in (mean, scale))
    return (found, mean, scale, *(call.args[0].new_empty(0) for _ in call.function._schema.returns[3:]))


LAYER, GROUP = "native_layer_norm", "native_group_norm"
STORED = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
ADDING: dict[str, Special] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), _product(0, 1)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _product(1, 2)),
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(("convolution", "convolution_overrideable", "_convolution"), _convolution),
    **dict.fromkeys(("sum", "mean", "nansum"), _sum),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _sum),
    **dict.fromkeys(("cumsum", "cumprod"), _running),
    **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys((LAYER, GROUP, *STORED), _normalised),
}


# -- sums in the output, of half types ----------------------------------------------------------------------

# As many terms as elements are read for one that is written.
READ_FOR_EACH = (
    *("col2im", "unfold_backward", "index_add", "scatter_add", "prod", "native_layer_norm_backward"),
    *("embedding_dense_backward", "_embedding_bag_dense_backward"),
)
POOLED = ("avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices")


def add_in_place(call: Call, found: Any) -> Any:
    """Return the operator's results, each with the error of adding what meets in its elements one by one."""
    if call.mode.draws is None or call.unit or call.dtype not in HALF:
        return found
    counts = count_meeting(call, list(tensors.flat([found])))
    if counts is None:
        return found
    terms, unit = iter(counts), dtypes.UNIT_ROUNDOFF[str(call.dtype)[len("torch.") :]]

    def err(total: Any) -> Any:
        count = next(terms)
        if count < 2 or not total.numel():
            return total
        # What is added may be of either sign: its squares sum up to those of the totals, on average.
        error = rounding.sum_error(total.square().mean(), total, count, unit)
        return total + error.mul_(call.draws.deviates(total))

    return tensors.each_float(found, err)


def count_meeting(call: Call, results: Sequence[Any]) -> Sequence[float] | None:
    """Return for each result how many terms meet in an element of it; None for operators of which that is not known."""
    name, args = call.name, call.args

    def count_read() -> Sequence[float]:
        taken = max(value.numel() for value in tensors.flat((args, call.kwargs)))
        return [taken / max(1, result.numel()) for result in results]

    if name in READ_FOR_EACH:
        return count_read()
    if name == "scatter_reduce":
        return count_read() if args[4] in ("sum", "mean") else [1]
    if name in ("index_put", "_index_put_impl"):
        accumulates = len(args) > 3 and args[3]
        return [args[2].numel() / max(1, results[0].numel()) if accumulates else 1]
    if name in [f"{each}_backward" for each in POOLED]:
        return [count_windows(args[2], args[3])]
    if name in ("convolution", "_convolution", "convolution_overrideable"):
        return [count_windows(args[1].shape[2:], args[3]) if args[6] else 1]
    if name == "convolution_backward":  # of the data, the weight and the bias, as far as they were asked for
        gradient, _, weight, _, stride, _, _, transposed, *_, wanted = args
        samples = gradient.shape[0]
        terms = (1 if transposed else count_windows(weight.shape[2:], stride), samples, samples)
        return [count for count, asked in zip(terms, wanted) if asked]
    if name == f"{GROUP}_backward":  # of the weight and the bias, whose gradients are summed for each sample first
        return [1 if result.dim() > 1 else args[0].shape[0] for result in results]
    return None


def count_windows(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many windows of these sizes overlap in one place. `strides`: one for each size, or one of all; empty:
    the sizes."""
    if len(strides) == 1:
        strides = list(strides) * len(sizes)
    return math.prod(-(-size // step) for size, step in zip(sizes, strides or sizes))


# -- operators whose single step stands for many ------------------------------------------------------------

PLAIN = ("linalg_vector_norm", "linalg_cross")
FUSED = ("gelu_backward", "silu_backward", "mish_backward", "softplus_backward", "elu_backward", "log_sigmoid_backward")
FACTORISED = ("cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "lu_unpack", "ormqr", "triangular_solve")


def count_steps(call: Call) -> int:
    """Return the number of roundings that an element meets, one after another.

    In a factorisation or a solution as many as a matrix has columns: a stable algorithm gives what is exact for an
    input that was moved by as many, of either sign (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
    chapters 9, 10 and 19). One in any other operator."""
    if call.name.startswith("grid_sampler"):  # whose coordinates are multiplied by a number of pixels
        return int(max(call.args[0].shape[2:])) ** 2
    if call.is_transform:  # in each pass a product, its sum, a twiddle factor, an addition (Higham, chapter 24)
        size = math.prod(call.args[0].shape[dim] for dim in call.args[1])
        return 4 * math.ceil(math.log2(max(2, size)))
    if call.name in FUSED:  # an exponential or two, two products, and a sum of theirs that may cancel
        return 4
    if _factorises(call):
        return int(max(value.shape[-1] for value in tensors.flat(call.args) if value.dim()))
    return 1


def _factorises(call: Call) -> bool:
    return (call.name.lstrip("_").startswith("linalg_") and call.name not in PLAIN) or call.name in FACTORISED


def scale_rows(call: Call, value: Any, unit: float) -> Any:
    """Return a factor with its rows each off by a factor of its own: as far as computed factors are from orthogonal
    ones. Other operators' results stay as they are."""
    if not value.dim() or not value.numel() or not _factorises(call):
        return value
    return value * (1 + call.draws.deviates(value.narrow(-1, 0, 1)).mul_(unit / THIRD))
