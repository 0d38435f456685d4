"""Gradients of attention along dO in float64, written out; and the error scale beside them.

With P the softmax of a row, M the factors of dropout and D = rowsum(dO O), as in FlashAttention-2's backward pass (Dao,
2023, section 3.1.2):

    dV = (P M)^T dO      dS = P (M dO V^T - D)      dQ = scale dS K      dK = scale dS^T Q

Of a head of K and V that several heads of Q share, the gradient is the sum over these. A row that sees no key
contributes nothing. An additive mask has no gradient here.

The emulation goes on where that of `attention_emulation` ends: P is computed again by the logarithm of the row's sum,
in float32; P and dS are rounded to a half type before they meet an operand, D is made of the rounded output, and each
head's dK and dV are rounded before heads are added. In float32 every sum takes its products one by one, in index order.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, NamedTuple, Sequence

import numpy as np

from . import attention_emulation, dtypes, inputs, rounding, truth

if TYPE_CHECKING:
    from .attention_emulation import Add, Draw, Operand
    from .dtypes import Array
    from .inputs import Each

    Answers = List[Array]  # output, and gradients of Q, K and V

DRAWN, TURNS = 20240521, 6  # the generator's key, and how often signs of errors are drawn
NOTHING = 2.0**-40  # of two numbers: less is what float64 leaves where their difference is zero
OUTPUTS = ("output", "grad of q", "grad of k", "grad of v")
NO_DELTA, NO_SCALE, NO_KEEP_SCALE = "without rowsum(dO O)", "without the softmax scale", "without dropout's scale"
UNMASKED, UNDROPPED = "without the mask of its forward pass", "without the draws of its forward pass"
ONE_HEAD = "of one of the heads that share K and V alone"
SHORT = "without the last eighth of its rows and keys"


def faults(*, masked: bool, dropped: bool, shared: bool) -> list[str]:
    """Those that an attention can have."""
    found = [NO_DELTA, NO_SCALE, SHORT, *([UNMASKED] if masked else []), *([ONE_HEAD] if shared else [])]
    return [*found, NO_KEEP_SCALE, UNDROPPED] if dropped else found


class Rows(NamedTuple):
    """Some rows of a head, decoded: Q and dO [rows, D], K and V [keys, D]; what concerns pairs [rows, keys] or None."""

    q: Array
    k: Array
    v: Array
    d_out: Array
    scale: float
    hidden: Array | None  # leaves a key to every row
    empty: Array  # [rows, 1]: which see no key
    bias: Array | None
    kept: Array | None  # factors of dropout
    of: int  # rows of the whole head


def attention(
    q: Array,
    k: Array,
    v: Array,
    d_out: Array,
    causal: bool,
    scale: float,
    dtype: str,
    each: Each = map,
    precision: Sequence[str] = (),
    realisation: int = 0,
    mask: Array | None = None,
    keep: Array | None = None,
    dropout: float = 0.0,
    fault: str = "",
    emulates: bool = True,
) -> tuple[Answers, Answers]:
    """(truth, emulation) of `OUTPUTS`. Arguments are those of `truth.attention`, and `d_out` is like Q. `fault`, one of
    `faults`, is planted into the truth. For a second `realisation` in float32 see `_single`."""
    heads, rows = q.shape[1:3]
    sharing = heads // k.shape[1]
    exact, emulated = ([np.zeros(array.shape) for array in (q, q, k, v)] for _ in range(2))
    step = truth.rows_at_once(dtype, k.shape[2])

    def blocks(head: tuple[int, int]) -> Iterator[tuple[slice, Rows]]:
        queries, keys, values = truth.of_head(q, k, v, head, dtype)
        along = dtypes.decode(d_out[head], dtype)
        for start in range(0, rows, step):
            block = slice(start, min(start + step, rows))
            count = min(block.stop, len(keys)) if causal and fault != UNMASKED else len(keys)
            last = np.arange(rows)[block] if causal else None
            hidden, bias = truth.masked(last, truth.of_rows(mask, head, block, dtype), count)
            kept = None if keep is None else keep[head][block, :count] / (1 - dropout)
            given = queries[block], keys[:count], values[:count], along[block], scale
            yield block, Rows(*given, *truth.seen(hidden, block.stop - start), bias, kept, rows)

    def one(shared: tuple[int, int]) -> None:
        numbers = range(shared[1] * sharing, (shared[1] + 1) * sharing)
        sums: list[list[Array]] = []  # of K's and V's gradients: in float32 one pair, in half types one for each head
        for head in ((shared[0], number) for number in numbers):
            declared = truth.declared(dtype, precision, realisation, head[0] * heads + head[1])
            arithmetic: Callable[..., Any] = functools.partial(_half, **declared)
            if dtype == "float32":
                arithmetic = functools.partial(_single, erring=realisation > 0, **declared)
            if not sums or dtype != "float32":
                kind = np.float32 if dtype == "float32" else np.float64
                sums.append([np.zeros(k.shape[:1:-1], kind).T for _ in range(2)])
            for block, part in blocks(head):
                found = _exact(part, fault)
                counts = fault != ONE_HEAD or head[1] == numbers[0]
                for array, values in zip(exact[:2], found[:2]):
                    array[head][block] = values
                for array, values in zip(exact[2:], found[2:]):
                    array[shared][: len(values)] += values if counts else 0.0
                if emulates:
                    own = (each[: len(part.k)] for each in sums[-1])
                    emulated[0][head][block], emulated[1][head][block] = arithmetic(part, *own)
        for array, parts in zip(emulated[2:], zip(*sums)):
            array[shared] = _rounded(np.sum([_rounded(each, dtype) for each in parts], axis=0), dtype)

    list(each(one, np.ndindex(k.shape[0], k.shape[1])))
    return exact, emulated


def _rounded(values: Array, dtype: str) -> Array:
    return dtypes.quantise(values, dtype)


def _exact(rows: Rows, fault: str) -> Answers:
    """In float64: the output, and the gradients of Q and of these K and V."""
    q, k, v, d_out = (array.astype(np.float64) for array in rows[:4])
    logits = truth.logits_of(q, k, rows.scale, rows.hidden, rows.bias)
    largest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - largest)
    total = weights.sum(axis=1, keepdims=True)
    weights = np.where(rows.empty, 0.0, weights / total)
    kept: Any = 1.0 if rows.kept is None else rows.kept
    out = (weights * kept) @ v
    delta = 0.0 if fault == NO_DELTA else (d_out * out).sum(axis=1, keepdims=True)
    if fault == UNMASKED:
        logits = truth.logits_of(q, k, rows.scale, None, None)  # P is at most 1, wherever that leads
        weights = np.where(rows.empty, 0.0, np.exp(np.minimum(logits - largest - np.log(total), 0.0)))
    elif fault == UNDROPPED:
        kept = 1.0
    elif fault == NO_KEEP_SCALE:
        kept = np.sign(kept) if rows.kept is not None else kept
    d_weights = kept * (d_out @ v.T)
    d_logits = d_weights - delta
    d_logits[np.abs(d_logits) < NOTHING * np.abs(d_weights)] = 0.0
    d_logits *= weights * (1.0 if fault == NO_SCALE else rows.scale)
    entering = weights * kept
    keys = slice(len(k) - len(k) // 8 if fault == SHORT else None)
    some = slice(len(q) - len(q) // 8 if fault == SHORT else None)
    return [out, d_logits[:, keys] @ k[keys], d_logits[some].T @ q[some], entering[some].T @ d_out[some]]


def _again(logits: Array, largest: Array, total: Array, empty: Array) -> Array:
    """The softmax as a backward pass has it: by the logarithm of a row's sum, which is kept in float32."""
    logarithm = (largest + np.log(total)).astype(np.float32)
    return np.where(empty, np.float32(0), attention_emulation.exponential(logits - logarithm))


def turned(exact: Array, emulated: Array, number: int) -> Array:
    """The emulation with the signs of its errors drawn anew, of rows or of elements. A mean over errors is near zero by
    luck where few rows carry most of it, as where one key has nearly all weight, or where there are few rows at all."""
    shape = exact.shape if number % 2 else (*exact.shape[:-1], 1)
    drawn = inputs.deviates(DRAWN, number, 0, int(np.prod(shape))).reshape(shape)
    found: Array = exact + np.where(drawn > 0, 1.0, -1.0) * (emulated - exact)
    return found


def _half(rows: Rows, dk: Array, dv: Array, *, dtype: str, sums: Draw | None) -> tuple[Array, Array]:
    """Output and gradient of Q in a half type; what rows add to those of K and V is added, exactly."""
    product = functools.partial(attention_emulation.product, sums=sums)
    logits = attention_emulation.half_logits(rows.q, rows.k, rows.scale, rows.hidden, rows.bias, product)
    largest = logits.max(axis=1, keepdims=True)
    weights = attention_emulation.exponential(logits - largest)
    total = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    kept: Any = np.float32(1) if rows.kept is None else rows.kept.astype(np.float32)
    out = _rounded(product(_rounded(weights * kept, dtype), rows.v) / total, dtype)
    out = np.where(rows.empty, 0.0, out)
    weights = _again(logits, largest, total, rows.empty)
    delta = (rows.d_out * out).sum(axis=1, keepdims=True).astype(np.float32)
    d_logits = _rounded(weights * (kept * product(rows.d_out, rows.v.T).astype(np.float32) - delta), dtype)
    dk += rows.scale * product(d_logits.T, rows.q, terms=rows.of)
    dv += product(_rounded(weights * kept, dtype).T, rows.d_out, terms=rows.of)
    return out, _rounded(rows.scale * product(d_logits, rows.k), dtype)


def _single(
    rows: Rows,
    dk: Array,
    dv: Array,
    *,
    erring: bool,
    operand: Operand = attention_emulation.unchanged,
    add: Add = attention_emulation.accumulate,
) -> tuple[Array, Array]:
    """The same in float32; arrays inside are [keys, rows] and [D, rows], so that the innermost loops are long.

    Of a row that sees one key dS is zero, and what remains is the difference of two equal sums' errors, which may be
    zero by luck, too. So in one that is `erring` D is off by twice the standard deviation of its error."""
    scale = np.float32(rows.scale)
    q, k, v, d_out = map(operand, rows[:4])
    kept: Any = np.float32(1) if rows.kept is None else rows.kept.T.astype(np.float32)
    logits = attention_emulation.single_logits(rows.q, rows.k, rows.scale, rows.hidden, rows.bias, operand, add)
    largest = logits.max(axis=0)
    weights = attention_emulation.exponential(logits - largest)
    total, out, dq = (np.zeros((size, len(q)), np.float32) for size in (1, v.shape[1], q.shape[1]))
    attention_emulation.accumulate(total, np.ones((len(k), 1), np.float32), weights)
    add(out, v, operand(weights * kept))
    out = np.where(rows.empty.T, np.float32(0), out / total)
    weights = _again(logits, largest, total, rows.empty.T)
    d_weights = np.zeros_like(weights)
    add(d_weights, v.T, d_out.T)
    terms = rows.d_out.T * out
    delta = np.cumsum(terms, axis=0, dtype=np.float32)[-1]
    if erring:
        error = rounding.sum_error(np.square(terms).sum(axis=0), delta, len(terms), dtypes.UNIT_ROUNDOFF["float32"])
        delta += (2 * error * np.where(np.arange(len(q)) % 2, -1, 1)).astype(np.float32)
    d_logits = operand(weights * (kept * d_weights - delta))
    add(dq, k, d_logits)
    add(dk.T, q * scale, d_logits.T)
    add(dv.T, d_out, operand(weights * kept).T)
    return out.T, (dq * scale).T
