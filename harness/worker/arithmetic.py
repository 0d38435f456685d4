"""What one operator of a model does to numbers: its operands, its errors, and the random numbers that make these.

`emulation` computes with it; `sums` knows how far single operators err.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import torch

from . import dtypes, inputs, rounding, tensors

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WITH_HALF_SUMS = (torch.float16, torch.float64)  # the latter where operands of a half type were made wider
SEED = 20240517  # of the draws
FEW = 1024  # sums: of so few none is drawn small by luck
TRANSFORMS = "_fft_"
THIRD = 3**0.5  # a sum of K terms of one sign errs by sqrt(K / 3) roundings of the whole, see `rounding.sum_error`
# Operators that multiply matrices, or convolve.
PRODUCTS = (
    *("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"),
    *("convolution", "convolution_overrideable", "_convolution", "convolution_backward"),
)
# Operators that only move, choose or compare numbers: exact.
EXACT = """
    _to_copy clone copy cat stack _unsafe_view reshape_alias index index_select gather scatter where masked_fill
    relu threshold clamp clamp_min clamp_max hardtanh max min amax amin maximum minimum sort topk kthvalue median
    max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    max_pool1d max_pool2d max_pool3d embedding constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle flip roll repeat tril triu neg
    abs sign floor ceil round trunc fill zero zeros_like ones_like full_like empty_like new_zeros new_ones new_full
    _unique unique_dim unique_consecutive _unique2
    new_empty upsample_nearest1d upsample_nearest2d upsample_nearest3d im2col masked_select diag diag_embed
    native_dropout cummax cummin channel_shuffle empty empty_strided new_empty_strided set_
"""
MOVES = frozenset(EXACT.split())


class DrawsNumbers(ValueError):
    """A model draws random numbers when it is called, so its float64 result depends on them."""


class Settings:
    """Exact arithmetic; one that rounds where there are `draws`. `precision`: what `rounding.effective` leaves of
    it."""

    def __init__(self, draws: Realisation | None = None, precision: Sequence[str] = ()) -> None:
        self.draws, self.precision = draws, precision
        self.leaves_range = False  # whether a rounded result was infinite, or zero where its number is not
        self.splits = draws is not None and rounding.TF32X3_MATMUL in precision  # operands of products, into TF32 parts


class Call:
    """One operator on operands in the type it is worked in, with the errors that it makes there."""

    def __init__(self, mode: Settings, function: Any, name: str, args: Any, kwargs: Any, work: Any, dtype: Any) -> None:
        self.mode, self.function, self.work, self.dtype = mode, function, work, dtype
        self.name = name.rstrip("_")
        self.exact = self.name in MOVES
        emulates = mode.draws is not None
        self.noisy = emulates and work == torch.float64 and dtype == torch.float32
        self.unit = dtypes.UNIT_ROUNDOFF["float32"] if self.noisy else 0.0
        contraction = self.name in PRODUCTS
        self.held = dtype  # what a sum is held in
        if contraction and emulates and rounding.FLOAT16_SUMS in mode.precision and dtype in WITH_HALF_SUMS:
            self.unit, self.held = dtypes.UNIT_ROUNDOFF["float16"], torch.float16
        convolves = "convolution" in self.name
        kind = rounding.TF32_CONVOLUTION if convolves else rounding.TF32_MATMUL
        self.cut = contraction and kind in mode.precision and dtype == torch.float32 and emulates
        self.args, self.kwargs = tensors.mapped((args, kwargs), self._operand)

    @property
    def is_transform(self) -> bool:
        """Return whether it is a Fourier transform: `_fft_r2c`, `_fft_c2r`, `_fft_c2c`."""
        return self.name.startswith(TRANSFORMS)

    @property
    def draws(self) -> Realisation:
        assert self.mode.draws is not None, "exact arithmetic errs nowhere"
        return self.mode.draws

    def _operand(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return self.work if value in FLOATING else value
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype in tensors.PARTS and self.is_transform:
            return value.to(torch.complex128)
        if value.dtype not in FLOATING:
            return value
        if self.cut and value.dtype == torch.float32:
            truncated = rounding.tf32(value.detach().contiguous().numpy(), self.draws.odd)
            return torch.from_numpy(truncated).to(self.work)
        return value.to(self.work)

    def moved(self, value: Any, unit: float, copy: bool = False) -> Any:
        """Return a tensor that is worked with, each element moved by up to so many units; anything else as it is."""
        if isinstance(value, torch.Tensor) and value.dtype == torch.complex128 and self.is_transform:
            return torch.view_as_complex(self.moved(torch.view_as_real(value), unit, copy=True))
        is_moved = isinstance(value, torch.Tensor) and value.dtype == self.work
        return self.draws.moved(value.clone() if copy else value, unit) if is_moved else value

    def inexact(self, exact: Any, erring: Any) -> Any:
        """Return the one where the dtype holds it, else the other: nothing is lost that any arithmetic would keep."""
        return torch.where(exact.to(self.held).to(exact.dtype) == exact, exact, erring)

    def run(self) -> Any:
        """Return what the operator gives."""
        return self.function(*self.args, **self.kwargs)

    def erring(self, total: Any, squares: Callable[[], Any], terms: int) -> Any:
        """Return sums with the error of adding their terms one by one; `squares` gives the sum of the terms'
        squares."""
        if not self.unit or terms < 2:
            return total
        deviation = rounding.sum_error(squares().to(total.dtype), total, terms, self.unit)
        return self.inexact(total, total + deviation.mul_(self.draws.deviates(total)))


class Realisation:
    """The random numbers of one realisation; the same ones for the same model, on every machine."""

    def __init__(self, realisation: int, part: int = 0) -> None:
        self.realisation, self.made = realisation, 0
        self.stream = realisation + (part << 8)  # of which part of the model
        self.odd = bool(realisation % 2)

    def moved(self, tensor: Any, unit: float) -> Any:
        """Multiply each element by 1 + unit * (uniform in -1..1); in place."""
        flat = tensor.contiguous().view(-1)
        stream = self._stream()
        for first in range(0, flat.numel(), rounding.BLOCK):
            part = flat[first : first + rounding.BLOCK]
            words = stream.random_raw((part.numel() + 3) // 4).view(np.int16)[: part.numel()]
            part.mul_(torch.from_numpy(words.astype(np.float64)).mul_(unit / 2**15).add_(1))
        return flat.view(tensor.shape)

    def deviates(self, like: Any) -> Any:
        """Return approximately normal numbers, of the tensor's shape and dtype."""
        self.made += 1
        drawn = inputs.deviates(SEED, self.stream, self.made, like.numel())
        if drawn.size <= FEW:
            drawn = np.copysign(np.maximum(np.abs(drawn), np.float32(1)), drawn)
        return torch.from_numpy(drawn).view(like.shape).to(like.dtype)

    def _stream(self) -> Any:
        self.made += 1
        return np.random.Philox(
            key=np.array([SEED, 1], np.uint64), counter=np.array([0, 0, self.stream, self.made], np.uint64)
        )
