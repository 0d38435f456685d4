"""A problem's ``Model``, operator by operator: in float64, or as straightforward arithmetic in its dtype would have it.

PyTorch's own dispatch hands every operator over (`TorchDispatchMode`), so a model can be anything. Exactly: whatever
is a floating-point number becomes float64. Emulated: each operator is given its operands in a wider type, and what it
gives is rounded once to the dtype that it would have had. Beyond that, in float32,

* where its result is not exact, its operands are moved by up to one rounding, at random: Monte Carlo arithmetic
  (Parker, Pierce and Eggert, Monte Carlo arithmetic: how to gamble with floating point and win, Computing in Science
  and Engineering 2(4), 2000). It stands for the last bits of elementary functions, and for other ways to write them;
* a sum gets the error of adding its terms one by one, at random too (`rounding.sum_error`): products of matrices,
  convolutions, means, norms, the sums inside of softmax and of normalisations. Adding in any other order errs less.

In half types both are hundreds of times smaller than the rounding of what goes in and comes out, and are left out, but
for float16 accumulators, where a kernel declares them. Draws are of a counter-based generator, never of PyTorch's.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, Mapping, Sequence

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import dtypes, rounding, sums, tensors
from .arithmetic import FLOATING, TRANSFORMS, Call, DrawsNumbers, Realisation, Settings

LARGE = 1 << 25  # elements: of more the result is moved, not each operand: their copies would need too much memory
TURNS = ("squeeze_", "unsqueeze_", "transpose_", "t_", "as_strided_")  # in place, and of the shape alone


class Arithmetic(TorchDispatchMode, Settings):  # type: ignore[misc]
    """All operators in float64; each rounded instead where there are `draws`."""

    def __init__(self, draws: Realisation | None = None, precision: Sequence[str] = ()) -> None:
        TorchDispatchMode.__init__(self)
        Settings.__init__(self, draws, precision)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = function._schema
        if any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns):
            return function(*args, **kwargs)  # a view
        if draws_numbers(function, args, kwargs):
            message = "Model draws random numbers at each call: only the same draws can be compared"
            raise DrawsNumbers(message)
        name = schema.name.split("::")[-1]
        if name in TURNS:
            return function(*args, **kwargs)
        counted = (*FLOATING, *tensors.PARTS) if name.startswith(TRANSFORMS) else FLOATING
        floating = [t for t in tensors.flat((args, kwargs)) if t.dtype in counted]
        asked = next((v for v in (*args, *kwargs.values()) if isinstance(v, torch.dtype) and v in FLOATING), None)
        if self.draws is None:
            dtype = work = torch.float64
        else:
            dtype = asked or tensors.promoted(floating)
            seen = {tensors.PARTS.get(tensor.dtype, tensor.dtype) for tensor in floating} | {dtype}
            work = torch.float32 if seen <= set(sums.HALF) else torch.float64
        if not floating:  # made from nothing, or of integers
            return _cast(function(*args, **kwargs), dtype) if self.draws is None else function(*args, **kwargs)
        call = Call(self, function, name, args, kwargs, work, dtype)
        result = run(call)
        if self.draws is not None and self.draws.realisation and dtype in sums.HALF and not call.exact:
            # So that another realisation is rounded another way.
            unit = dtypes.UNIT_ROUNDOFF[str(dtype).replace("torch.", "")]
            result = tensors.mapped(result, lambda value: call.moved(value, unit))
        exact, result = result, _cast(result, dtype)
        self.leaves_range = self.leaves_range or (self.draws is not None and tensors.loses(exact, result))
        written = [
            (before, after)
            for argument, before, after in tensors.pairs(schema, (args, kwargs), (call.args, call.kwargs))
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        for before, after in written:
            before.copy_(after)
        return written[0][0] if written and isinstance(result, torch.Tensor) else result


def run(call: Call) -> Any:
    """Return what an operator gives, with its errors."""
    special = sums.add_terms(call)
    if special is None and (not call.noisy or call.exact):
        special = call.run()
    if special is not None:
        return sums.add_in_place(call, special)
    small = all(value.numel() <= LARGE for value in tensors.flat((call.args, call.kwargs)))
    erring = None
    if small:  # before the operator writes into what it is given
        operands = call.args, call.kwargs
        unit = call.unit * sums.count_steps(call) ** 0.5
        args, kwargs = tensors.mapped(operands, lambda value: call.moved(value, unit, copy=True))
        erring = call.function(*args, **kwargs)
        if unit > call.unit:
            erring = tensors.each_float(erring, lambda value: sums.scale_rows(call, value, unit))
    result = call.run()
    if not isinstance(result, torch.Tensor):
        return tensors.with_fractions(erring, result) if isinstance(erring, (list, tuple)) else result
    if result.dtype != call.work:  # numbers that were compared, or counted; or complex ones
        return erring if result.is_complex() and erring is not None else result
    summed = sums.add_up(call, result) if sums.count_steps(call) == 1 else None
    if summed is not None or erring is None:
        erring = call.draws.moved(result.clone(), call.unit) if summed is None else summed
    return result.copy_(call.inexact(result, erring))


@contextlib.contextmanager
def doing(arithmetic: Arithmetic) -> Iterator[Arithmetic]:
    """Within, PyTorch computes so. Fused operators of oneDNN, which know float32 alone, are off."""
    attention = Attention(arithmetic)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), attention, arithmetic:
        yield arithmetic


def _cast(result: Any, dtype: Any) -> Any:
    def cast(tensor: Any) -> Any:
        if tensor.is_complex():
            return tensor.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
        return tensor.to(dtype) if tensor.dtype in FLOATING else tensor

    return tensors.each_tensor(result, cast)


def doubled(model: Any) -> Any:
    """In float64, with the tensors that are plain attributes of its parts."""
    for part in model.double().modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                vars(part)[name] = value.double()
    return model


# -- scaled dot product attention in a model ------------------------------------------------------------------


class Attention(TorchFunctionMode):  # type: ignore[misc]
    """Within, attention is written out in an `Arithmetic` that rounds: its backends are operators of their own, others
    by version. In plain float64 it is what this version computes: versions need not agree, such as on a query that sees
    no key."""

    def __init__(self, arithmetic: Settings) -> None:
        super().__init__()
        self.arithmetic = arithmetic

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_attention = getattr(function, "__name__", "") == "scaled_dot_product_attention"
        if is_attention and self.arithmetic.draws is not None:
            return written_out(self.arithmetic, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def replaced(arithmetic: Settings, writes_out: bool) -> Iterator[list[str]]:
    """Within, and in this thread, attention is written out, or only noticed; also where PyTorch's own modules call it.
    What is yielded has an entry for each call."""
    calls: list[str] = []
    original, own = functional.scaled_dot_product_attention, threading.get_ident()

    def attention(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != own:
            return original(*args, **kwargs)
        calls.append("scaled_dot_product_attention")
        return written_out(arithmetic, *args, **kwargs) if writes_out else original(*args, **kwargs)

    functional.scaled_dot_product_attention = attention
    try:
        yield calls
    finally:
        functional.scaled_dot_product_attention = original


def draws_numbers(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an operator draws random numbers in this call: attention does where it drops weights."""
    if torch.Tag.nondeterministic_seeded not in function.tags:
        return False
    names = [argument.name for argument in function._schema.arguments]
    if "scaled_dot_product" not in function._schema.name or "dropout_p" not in names:
        return True
    return bool({**dict(zip(names, args)), **kwargs}.get("dropout_p", 0.0))


class Product(torch.autograd.Function):  # type: ignore[misc]
    """Of batches of matrices inside attention, there and in its backward pass: as its backends multiply them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(arithmetic: Settings, left: Any, right: Any) -> Any:
        return Product.of(arithmetic, left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.arithmetic, left, right = inputs
        ctx.save_for_backward(left, right)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        left, right = ctx.saved_tensors
        of_left = Product.of(ctx.arithmetic, gradient, right.transpose(-2, -1))
        return None, of_left, Product.of(ctx.arithmetic, left.transpose(-2, -1), gradient)

    @staticmethod
    def of(arithmetic: Settings, left: Any, right: Any) -> Any:
        before, arithmetic.splits = arithmetic.splits, True
        try:
            return left @ right
        finally:
            arithmetic.splits = before


def written_out(
    arithmetic: Settings,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Logits and weights are tensors of the dtype, as in PyTorch's own `math` backend before 2.5, which runs where no
    other takes the arguments."""
    if dropout_p:
        raise DrawsNumbers("its attention drops weights at random")
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    width = max(1, query.shape[-1])  # without elements all logits are 0, and nothing is scaled

    splits = arithmetic.draws is not None and rounding.TF32X3_ATTENTION in arithmetic.precision

    def product(left: Any, right: Any) -> Any:
        alike = left.shape[:-2] == right.shape[:-2]
        return Product.apply(arithmetic, left, right) if splits and alike else left @ right

    logits = product(query, key.transpose(-2, -1)) * (width**-0.5 if scale is None else scale)
    if is_causal:
        hidden = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1)
        logits = logits.masked_fill(hidden, float("-inf"))
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == torch.bool else logits + attn_mask
    return product(torch.softmax(logits, -1), value)
