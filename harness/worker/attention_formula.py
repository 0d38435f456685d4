"""Attention and its gradients, written out: in float64, or as the arithmetic of a fused kernel has them.

With P the softmax of a row, M the factors of dropout and D = rowsum(dO O), as in FlashAttention-2's backward pass (Dao,
2023, section 3.1.2):

    O = (P M) V      dV = (P M)^T dO      dS = P (M dO V^T - D)      dQ = scale dS K      dK = scale dS^T Q

An `emulation.Arithmetic` decides what these operators do. In a half type it finds here what every fused kernel does:
operands enter products as they are, sums are wider, logits are kept in float32, weights (and dS) are rounded before
they meet an operand, D is made of the rounded output, and P is computed again by the logarithm of the row's sum. A head
at a time and in blocks of rows, so that memory stays bounded at any length.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, NamedTuple, Protocol, Tuple

import torch

if TYPE_CHECKING:
    from .emulation import Arithmetic

    Results = Tuple[List[Any], List[Arithmetic]]

BLOCK_ELEMENTS = 1 << 22  # logits held at a time: 32 MiB of float64
NOTHING = 2.0**-40  # of two numbers: less is what float64 leaves where their difference is zero


class AttentionAsked(Protocol):
    """What has to be known of an attention to compute it."""

    causal: bool
    backward: bool
    mask: str  # of a kind; `bias` is added to the logits
    scale: float
    positions: Any  # None, or those of its queries, where they are a part

    @property
    def keep_scale(self) -> float:
        """Return the factor of what dropout keeps."""


class Rows(NamedTuple):
    """Some rows of one head: Q, dO [rows, columns], K, V [keys, columns]; what concerns pairs is [rows, keys]."""

    q: Any
    k: Any
    v: Any
    d_out: Any  # None where no gradients are asked for
    hidden: Any  # None, or booleans that leave a key to every row
    empty: Any  # [rows, 1]: which see no key
    bias: Any  # None, or what is added to the logits
    kept: Any  # None, or the draws of dropout


def compute(workload: AttentionAsked, given: Any, arithmetic_of: Callable[[int], Arithmetic]) -> Results:
    """Return the output and, with `backward`, the gradients of Q, K and V, as tensors of float64; and what each head of
    each batch entry was computed by. `arithmetic_of` makes that, by the head's number."""
    q, k, v = given[:3]
    found = [torch.zeros(each.shape, dtype=torch.float64) for each in ([q, q, k, v] if workload.backward else [q])]
    sharing = q.shape[1] // k.shape[1]

    def compute_shared(place: tuple[int, int]) -> list[Arithmetic]:
        """Compute the heads that share one of K and V."""
        entry, shared = place
        made = []
        for head in range(shared * sharing, (shared + 1) * sharing):
            arithmetic = arithmetic_of(entry * q.shape[1] + head)
            sums = [torch.zeros(each.shape[2:], dtype=torch.float64) for each in (k, v)]
            for block, rows in _blocks(workload, given, entry, head):
                with torch.no_grad(), arithmetic:
                    parts = attend(rows, workload.scale, workload.keep_scale)
                for values, part in zip(found[:2], parts[:2]):
                    values[entry, head, block] = part.double()
                for total, part in zip(sums, parts[2:]):
                    total[: len(part)] += part.double()
            for values, total in zip(found[2:], sums):
                values[place] += total if arithmetic.draws is None else total.to(q.dtype).double()
            made.append(arithmetic)
        return made

    places = list(itertools.product(range(k.shape[0]), range(k.shape[1])))
    with concurrent.futures.ThreadPoolExecutor(torch.get_num_threads()) as pool:
        arithmetics = [each for made in pool.map(compute_shared, places) for each in made]
    if any(each.draws is not None for each in arithmetics):
        found = [values.to(q.dtype).double() for values in found]
    return found, arithmetics


def _blocks(workload: AttentionAsked, given: Any, entry: int, head: int) -> Iterator[tuple[slice, Rows]]:
    """Yield the parts of a head; of K and V what some of a part's rows see where attention is causal."""
    shared = head * given.k.shape[1] // given.q.shape[1]
    q, k, v = given.q[entry, head], given.k[entry, shared], given.v[entry, shared]
    positions = torch.arange(len(q)) if workload.positions is None else torch.from_numpy(workload.positions)
    step = max(1, BLOCK_ELEMENTS // len(k))
    for start in range(0, len(q), step):
        block = slice(start, min(start + step, len(q)))
        count = min(int(positions[block][-1]) + 1, len(k)) if workload.causal else len(k)
        mask = None if given.mask is None else given.mask[entry, head % given.mask.shape[1], block, :count]
        bias = mask if workload.mask == "bias" else None
        hidden = torch.zeros(block.stop - start, count, dtype=torch.bool)
        if mask is not None and bias is None:
            hidden = ~mask
        if workload.causal:
            hidden = hidden | (torch.arange(count) > positions[block, None])
        empty = hidden.all(-1, keepdim=True)
        kept = None if given.keep is None else given.keep[entry, head, block, :count]
        d_out = None if given.d_out is None else given.d_out[entry, head, block]
        yield block, Rows(q[block], k[:count], v[:count], d_out, hidden & ~empty, empty, bias, kept)


def attend(rows: Rows, scale: float, keep_scale: float) -> list[Any]:
    """Return the output of some rows and, where there is a `d_out`, the gradient of Q and what they add to those of K
    and of V."""
    dtype = rows.q.dtype
    is_half = dtype in (torch.float16, torch.bfloat16)
    rounded = functools.partial(_through, dtype) if is_half else _unchanged
    single = functools.partial(_through, torch.float32) if is_half else _unchanged
    q, k, v, d_out, bias = (each if each is None or not is_half else each.double() for each in (*rows[:4], rows.bias))
    logits = (q @ k.t()) * scale
    if bias is not None:
        logits = logits + bias
    logits = single(logits).masked_fill(rows.hidden, float("-inf"))
    largest = logits.amax(-1, keepdim=True)
    weights = torch.exp(logits - largest)
    total = weights.sum(-1, keepdim=True)
    kept = None if rows.kept is None else rows.kept.to(logits.dtype) * keep_scale

    def times_kept(values: Any) -> Any:
        return values if kept is None else values * kept

    out = rounded((rounded(times_kept(weights)) @ v) / total).masked_fill(rows.empty, 0.0)
    if d_out is None:
        return [out]
    again = torch.exp(logits - single(largest + total.log())).masked_fill(rows.empty, 0.0)
    d_weights = times_kept(d_out @ v.t())
    d_logits = d_weights - single((d_out * out).sum(-1, keepdim=True))
    d_logits = d_logits.masked_fill(d_logits.abs() < NOTHING * d_weights.abs(), 0.0)
    d_logits = rounded(again * d_logits)
    return [out, (d_logits @ k) * scale, (d_logits.t() @ q) * scale, rounded(times_kept(again)).t() @ d_out]


def _through(dtype: Any, values: Any) -> Any:
    """Return numbers rounded to a dtype, in the type that they had."""
    return values.to(dtype).to(values.dtype)


def _unchanged(values: Any) -> Any:
    return values
