"""What faulty attentions give: wrong answers that a check of a kernel is to tell from the truth, see `power`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

import numpy as np

from . import attention_gradients
from .truth import BLOCK_ELEMENTS, attention, logits_of, masked, of_head, of_rows

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Each


class WrongAnswer(NamedTuple):
    kind: str
    name: str
    size: float | None
    values: Array  # float64
    output: str = ""  # of which of several


def wrong(
    q: Array,
    k: Array,
    v: Array,
    causal: bool,
    scale: float,
    dtype: str,
    each: Each = map,
    mask: Array | None = None,
    keep: Array | None = None,
    dropout: float = 0.0,
    main: str = "",
) -> Iterator[WrongAnswer]:
    """What faulty attentions give, see `power.specific`. `main`: the output's name, where there are gradients.

    All from one pass. A wrong scale to first order: the derivative of softmax(scale Q K^T) V by the scale.
    """
    if causal:  # what no row sees cannot be missed
        k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
    truth = np.empty((*q.shape[:3], v.shape[3]))
    one, eighth, slope, mean = (np.empty_like(truth) for _ in range(4))
    count, batch_heads = k.shape[2], list(np.ndindex(*q.shape[:2]))
    seen_keys = np.arange(count)
    if mask is not None and mask.dtype == bool:
        seen_keys = np.flatnonzero(mask[..., :count].any(axis=(0, 1, 2)))
        if not len(seen_keys):
            return  # every output is zero
    middle = int(seen_keys[len(seen_keys) // 2])
    tail = slice(middle, middle + max(1, count // 8))
    step = max(1, BLOCK_ELEMENTS // count)

    def head(at: tuple[int, int]) -> None:
        queries, keys, values = (array.astype(np.float64) for array in of_head(q, k, v, at, dtype))
        for start in range(0, len(queries), step):
            block = slice(start, start + step)
            last = np.arange(len(queries))[block] if causal else None
            logits = logits_of(queries[block], keys, scale, *masked(last, of_rows(mask, at, block, dtype), count))
            seen = np.isfinite(logits)
            empty = ~seen.any(axis=1, keepdims=True)
            weights = np.exp(logits - np.where(empty, 0.0, logits.max(axis=1, keepdims=True)))
            kept: Any = 1.0 if keep is None else keep[at][block, :count] / (1 - dropout)
            entering = weights * kept
            total, product = weights.sum(axis=1, keepdims=True) + empty, entering @ values
            truth[at][block] = right = product / total
            for found, dropped in ((one, slice(middle, middle + 1)), (eighth, tail)):
                left = total - weights[:, dropped].sum(axis=1, keepdims=True)
                short = product - entering[:, dropped] @ values[dropped]
                found[at][block] = np.where(left > 0, short / np.where(left > 0, left, 1), 0.0)
            finite = np.where(seen, logits, 0.0)
            lost = (weights * finite).sum(axis=1, keepdims=True) * right
            slope[at][block] = ((entering * finite) @ values - lost) / total
            mean[at][block] = ((seen * kept) @ values) / (seen.sum(axis=1, keepdims=True) + empty)

    list(each(head, batch_heads))
    if count > 1:
        yield WrongAnswer("one row", "one key of one row dropped", None, one, main)
        yield WrongAnswer("short", "one key dropped", None, one, main)
        yield WrongAnswer("short", "an eighth of the keys dropped", None, eighth, main)
        yield WrongAnswer("mean", "uniform weights", None, mean, main)
    for name, keys, values, seen, kept in _misread(q, k, v, mask, keep):
        found, _ = attention(
            q, keys, values, causal, scale, dtype, each, mask=seen, keep=kept, dropout=dropout, emulates=False
        )
        if not np.allclose(found, truth, rtol=1e-9, atol=1e-12):  # on some inputs it is no fault
            yield WrongAnswer("misread", name, None, found, main)
    for size in (0.001, 0.003, 0.01):
        name = f"a softmax scale {size:.1%} too large"
        yield WrongAnswer("softmax scale", name, size, truth + size * slope, main)


def _misread(
    q: Array, k: Array, v: Array, mask: Array | None, keep: Array | None
) -> Iterator[tuple[str, Array, Array, Array | None, Array | None]]:
    """(fault, K, V, mask, draws of dropout) of kernels that take them for what they are not."""
    heads, shared = q.shape[1], k.shape[1]
    if 1 < shared < heads:
        order = np.arange(heads) % shared
        yield "heads of K and V in another order", k[:, order], v[:, order], mask, keep
    if k.shape[2] > q.shape[2]:
        rows = slice(q.shape[2])
        yield "as many keys as queries", k[:, :, rows], v[:, :, rows], mask, keep
    if mask is not None:
        yield "without the mask", k, v, None, keep
    if keep is not None:
        yield "without dropout", k, v, mask, None


def wrong_gradients(
    q: Array,
    k: Array,
    v: Array,
    d_out: Array,
    causal: bool,
    scale: float,
    dtype: str,
    each: Each = map,
    mask: Array | None = None,
    keep: Array | None = None,
    dropout: float = 0.0,
) -> Iterator[WrongAnswer]:
    """The same of gradients, whose forward pass is right."""

    def made(fault: str = "") -> dict[str, Array]:
        found, _ = attention_gradients.attention(
            q,
            k,
            v,
            d_out,
            causal,
            scale,
            dtype,
            each,
            mask=mask,
            keep=keep,
            dropout=dropout,
            fault=fault,
            emulates=False,
        )
        return dict(zip(attention_gradients.OUTPUTS, found))

    right, faults = (
        made(),
        attention_gradients.faults(
            masked=causal or mask is not None, dropped=keep is not None, shared=k.shape[1] < q.shape[1]
        ),
    )
    for fault in faults:
        for output, values in made(fault).items():
            if not np.allclose(values, right[output], rtol=1e-9, atol=1e-12):
                yield WrongAnswer("gradient", fault, None, values, output)
