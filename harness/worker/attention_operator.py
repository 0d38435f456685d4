"""Scaled dot product attention in a Model, written out: its backends are operators of their own, others by version."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from . import rounding
from .arithmetic import DrawsNumbers

if TYPE_CHECKING:
    from .arithmetic import Settings


class Attention(TorchFunctionMode):  # type: ignore[misc]
    """Within, it is written out in an `emulation.Arithmetic` that rounds, or that cuts sums. In plain float64 it is
    what this version computes: versions need not agree, such as on a query that sees no key."""

    def __init__(self, arithmetic: Settings) -> None:
        super().__init__()
        self.arithmetic = arithmetic

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_attention = getattr(function, "__name__", "") == "scaled_dot_product_attention"
        if is_attention and (self.arithmetic.draws is not None or self.arithmetic.short is not None):
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
