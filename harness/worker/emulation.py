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
import copy
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import attention_operator, contractions, dtypes, factorisations, inputs, protocol, rounding, scattered, tensors
from .meaning import float64_difference

if TYPE_CHECKING:
    from .dtypes import Array
    from .problem import ProblemWorkload

Short = Callable[[int], int]  # how many terms a sum of so many of them lacks
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HALF = (torch.float16, torch.bfloat16)
SEED = 20240517  # of the draws
LARGE = 1 << 25  # elements: of more the result is moved, not each operand: their copies would need too much memory
FEW = 1024  # sums: of so few none is drawn small by luck
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
TURNS = ("squeeze_", "unsqueeze_", "transpose_", "t_", "as_strided_")  # in place, and of the shape alone


class Arithmetic(TorchDispatchMode):  # type: ignore[misc]
    """All operators in float64; each rounded instead where there are `draws`, a `Realisation`. `precision`: what
    `rounding.effective` leaves of it.

    `short`: how many terms a sum of K of them lacks, as a function of K: to make known wrong answers.
    """

    def __init__(
        self,
        draws: Realisation | None = None,
        precision: Sequence[str] = (),
        short: Short | None = None,
    ) -> None:
        super().__init__()
        self.draws, self.precision, self.short = draws, precision, short
        self.shortened = False  # whether there was a sum to cut
        self.leaves_range = False  # whether a rounded result was infinite, or zero where its number is not
        self.splits = draws is not None and rounding.TF32X3_MATMUL in precision  # operands of products, into TF32 parts

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = function._schema
        if any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns):
            return function(*args, **kwargs)  # a view
        if attention_operator.draws_numbers(function, args, kwargs):
            message = "Model draws random numbers at each call: only the same draws can be compared"
            raise attention_operator.DrawsNumbers(message)
        name = schema.name.split("::")[-1]
        if name in TURNS:
            return function(*args, **kwargs)
        counted = (*FLOATING, *tensors.PARTS) if name.startswith(factorisations.TRANSFORMS) else FLOATING
        floating = [t for t in tensors.flat((args, kwargs)) if t.dtype in counted]
        asked = next((v for v in (*args, *kwargs.values()) if isinstance(v, torch.dtype) and v in FLOATING), None)
        if self.draws is None:
            dtype = work = torch.float64
        else:
            dtype = asked or tensors.promoted(floating)
            seen = {tensors.PARTS.get(tensor.dtype, tensor.dtype) for tensor in floating} | {dtype}
            work = torch.float32 if seen <= set(HALF) else torch.float64
        if not floating:  # made from nothing, or of integers
            return _cast(function(*args, **kwargs), dtype) if self.draws is None else function(*args, **kwargs)
        call = Call(self, function, name, args, kwargs, work, dtype)
        result = call.run()
        if self.draws is not None and self.draws.realisation and dtype in HALF and not call.exact:
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


class Call:
    """One operator on operands in the type it is worked in, with the errors that it makes there."""

    def __init__(
        self, mode: Arithmetic, function: Any, name: str, args: Any, kwargs: Any, work: Any, dtype: Any
    ) -> None:
        self.mode, self.function, self.work, self.dtype = mode, function, work, dtype
        self.name = name.rstrip("_")
        self.exact = self.name in MOVES
        emulates = mode.draws is not None
        self.noisy = emulates and work == torch.float64 and dtype == torch.float32
        self.unit = dtypes.UNIT_ROUNDOFF["float32"] if self.noisy else 0.0
        contraction = self.name in contractions.PRODUCTS
        if contraction and emulates and dtype == torch.float16:
            self.unit = dtypes.UNIT_ROUNDOFF["float16"] if rounding.FLOAT16_SUMS in mode.precision else 0.0
        convolves = "convolution" in self.name
        kind = rounding.TF32_CONVOLUTION if convolves else rounding.TF32_MATMUL
        self.cut = contraction and kind in mode.precision and dtype == torch.float32 and emulates
        self.args, self.kwargs = tensors.mapped((args, kwargs), self._operand)

    @property
    def draws(self) -> Realisation:
        assert self.mode.draws is not None, "exact arithmetic errs nowhere"
        return self.mode.draws

    def _operand(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return self.work if value in FLOATING else value
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype in tensors.PARTS and factorisations.transforms(self):
            return value.to(torch.complex128)
        if value.dtype not in FLOATING:
            return value
        if self.cut and value.dtype == torch.float32:
            truncated = rounding.tf32(value.detach().contiguous().numpy(), self.draws.odd)
            return torch.from_numpy(truncated).to(self.work)
        return value.to(self.work)

    def run(self) -> Any:
        special = contractions.special(self)
        if special is None and (not self.noisy or self.exact):
            special = self.function(*self.args, **self.kwargs)
        if special is not None:
            return scattered.added(self, special)
        small = all(value.numel() <= LARGE for value in tensors.flat((self.args, self.kwargs)))
        erring = None
        if small:  # before the operator writes into what it is given
            operands = self.args, self.kwargs
            unit = self.unit * factorisations.steps(self) ** 0.5
            args, kwargs = tensors.mapped(operands, lambda value: self.moved(value, unit, copy=True))
            erring = self.function(*args, **kwargs)
            if unit > self.unit:
                erring = tensors.each_float(erring, lambda value: factorisations.scaled(self, value, unit))
        result = self.function(*self.args, **self.kwargs)
        if not isinstance(result, torch.Tensor):
            return tensors.with_fractions(erring, result) if isinstance(erring, (list, tuple)) else result
        if result.dtype != self.work:  # numbers that were compared, or counted; or complex ones
            return erring if result.is_complex() and erring is not None else result
        summed = contractions.summed(self, result) if factorisations.steps(self) == 1 else None
        if summed is not None or erring is None:
            erring = self.draws.moved(result.clone(), self.unit) if summed is None else summed
        return result.copy_(self.inexact(result, erring))

    def moved(self, value: Any, unit: float, copy: bool = False) -> Any:
        """A tensor that is worked with, each element moved by up to so many units; anything else as it is."""
        if isinstance(value, torch.Tensor) and value.dtype == torch.complex128 and factorisations.transforms(self):
            return torch.view_as_complex(self.moved(torch.view_as_real(value), unit, copy=True))
        is_moved = isinstance(value, torch.Tensor) and value.dtype == self.work
        return self.draws.moved(value.clone() if copy else value, unit) if is_moved else value

    def inexact(self, exact: Any, erring: Any) -> Any:
        """The one where the dtype holds it, else the other: nothing is lost that any arithmetic would keep."""
        return torch.where(exact.to(self.dtype).to(exact.dtype) == exact, exact, erring)

    def lacking(self, terms: int) -> int:
        """How many of so many terms a sum is to lack."""
        count = self.mode.short(terms) if self.mode.short and terms > 1 else 0
        self.mode.shortened |= count > 0
        return count

    def erring(self, total: Any, squares: Callable[[], Any], terms: int) -> Any:
        """Sums, with the error of adding their terms one by one; `squares` gives the sum of the terms' squares."""
        if not self.unit or terms < 2:
            return total
        deviation = rounding.sum_error(squares().to(total.dtype), total, terms, self.unit)
        return self.inexact(total, total + deviation.mul_(self.draws.deviates(total)))


class Realisation:
    """The random numbers of one realisation; the same ones for the same model, on every machine."""

    def __init__(self, realisation: int) -> None:
        self.realisation, self.made = realisation, 0
        self.odd = bool(realisation % 2)

    def moved(self, tensor: Any, unit: float) -> Any:
        """Each element times 1 + unit * (uniform in -1..1); in place."""
        flat = tensor.contiguous().view(-1)
        stream = self._stream()
        for first in range(0, flat.numel(), rounding.BLOCK):
            part = flat[first : first + rounding.BLOCK]
            words = stream.random_raw((part.numel() + 3) // 4).view(np.int16)[: part.numel()]
            part.mul_(torch.from_numpy(words.astype(np.float64)).mul_(unit / 2**15).add_(1))
        return flat.view(tensor.shape)

    def deviates(self, like: Any) -> Any:
        """Approximately normal ones, of the tensor's shape and dtype."""
        self.made += 1
        drawn = inputs.deviates(SEED, self.realisation, self.made, like.numel())
        if drawn.size <= FEW:
            drawn = np.copysign(np.maximum(np.abs(drawn), np.float32(1)), drawn)
        return torch.from_numpy(drawn).view(like.shape).to(like.dtype)

    def _stream(self) -> Any:
        self.made += 1
        return np.random.Philox(
            key=np.array([SEED, 1], np.uint64), counter=np.array([0, 0, self.realisation, self.made], np.uint64)
        )


@contextlib.contextmanager
def doing(arithmetic: Arithmetic) -> Iterator[Arithmetic]:
    """Within, PyTorch computes so. Fused operators of oneDNN, which know float32 alone, are off."""
    attention = attention_operator.Attention(arithmetic)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), attention, arithmetic:
        yield arithmetic


def _cast(result: Any, dtype: Any) -> Any:
    def cast(tensor: Any) -> Any:
        if tensor.is_complex():
            return tensor.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
        return tensor.to(dtype) if tensor.dtype in FLOATING else tensor

    return tensors.each_tensor(result, cast)


def exact(workload: ProblemWorkload, arrays: list[Array], short: Short | None = None) -> tuple[dict[str, Array], bool]:
    """Return (the ground truth of its outputs in float64, whether sums were cut); `short` as of `Arithmetic`. What the
    problem's definition does not give is what its model gives."""
    arithmetic = Arithmetic(short=short)
    values = _in_float64(workload, arrays, arithmetic, workload.defined)
    if not workload.outputs.keys() <= values.keys():
        values = {**_in_float64(workload, arrays, arithmetic, lambda model: model), **_without_gradients(values)}
    return values, arithmetic.shortened


def formula_agrees(workload: ProblemWorkload, arrays: list[Array]) -> dict[str, bool]:
    """Return, for each output of a model that calls PyTorch's attention, whether its float64 result is what the formula
    of attention gives, written out. Elements that the formula leaves undefined (a query without keys) do not count."""
    results = []
    for writes_out in (False, True):
        arithmetic = Arithmetic()
        with attention_operator.replaced(arithmetic, writes_out) as calls:
            results.append(_in_float64(workload, arrays, arithmetic, lambda model: model))
        if not calls:
            return {}
    computed, by_formula = results
    return {name: _agrees_where_finite(computed[name], by_formula[name]) for name in computed if name in by_formula}


def _agrees_where_finite(own: Array, formula: Array) -> bool:
    if own.shape != formula.shape:
        return False
    defined = np.isfinite(formula)
    return float64_difference(np.where(defined, own, 0.0), np.where(defined, formula, 0.0)) is None


def _without_gradients(values: dict[str, Array]) -> dict[str, Array]:
    """Return what a definition gives without its gradients: those of some outputs alone are not the model's."""
    return {name: array for name, array in values.items() if not name.startswith(protocol.GRADIENT)}


def _in_float64(
    workload: ProblemWorkload, arrays: list[Array], arithmetic: Arithmetic, defined: Callable[[Any], Any]
) -> dict[str, Array]:
    model = defined(doubled(copied(workload)))
    arguments = workload.arguments(arrays, "cpu", lambda tensor: tensor.double())
    call, given = workload.bind(model, arguments, contiguous=True)
    with doing(arithmetic):
        output = call()
    found = workload.named(output, given).items()
    return {name: np.array(tensor.detach().numpy(), dtype=np.float64, order="C") for name, tensor in found}


def emulated(
    workload: ProblemWorkload, arrays: list[Array], precision: Sequence[str] = (), realisation: int = 0
) -> tuple[dict[str, Array], bool]:
    """Return what straightforward arithmetic in the dtype gives, as arrays that hold it exactly, and whether it left
    the dtype's range on its way. What a definition gives is rounded to the dtype of the model's output."""
    arithmetic = Arithmetic(Realisation(realisation), precision)

    def of(model: Any) -> dict[str, Array]:
        call, given = workload.bind(model, workload.arguments(arrays, "cpu"), contiguous=True)
        with doing(arithmetic):
            output = call()
        found = workload.named(output, given)
        return {name: dtypes.decode(tensors.to_array(t), tensors.dtype_name(t)) for name, t in found.items()}

    model = copied(workload)
    definition = workload.defined(model)
    if definition is model:
        return of(model), arithmetic.leaves_range
    values = of(definition)
    rounded = {
        name: dtypes.quantise(np.ascontiguousarray(array, np.float64), workload.outputs[name][1])
        for name, array in values.items()
        if name in workload.outputs and workload.outputs[name][1] in dtypes.UNIT_ROUNDOFF
    }
    values = {**values, **rounded}
    if not workload.outputs.keys() <= values.keys():
        values = {**of(copied(workload)), **_without_gradients(values)}
    return values, arithmetic.leaves_range


def copied(workload: ProblemWorkload) -> Any:
    if workload.pristine is None:
        workload.pristine, _ = workload.model(workload.problem, "Model", "cpu")
    try:
        return copy.deepcopy(workload.pristine)
    except Exception:  # some hold what cannot be copied: then it is made again
        return workload.model(workload.problem, "Model", "cpu")[0]


def doubled(model: Any) -> Any:
    """In float64, with the tensors that are plain attributes of its parts."""
    for part in model.double().modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                vars(part)[name] = value.double()
    return model
