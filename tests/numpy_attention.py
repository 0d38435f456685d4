"""Attention in numpy, for tests that have no PyTorch: what is exact, and what arithmetic in the dtype makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.worker import dtypes
from harness.worker.attention import AttentionWorkload


def exact(
    q: Any, k: Any, v: Any, causal: bool, scale: float, d_out: Any = None, keep: Any = None, kept: float = 1.0
) -> list[Any]:
    """Return the output and, along `d_out`, the gradients of Q, K and V; all of float64 [batch, heads, rows, columns],
    where several heads of Q may share one of K and V."""
    sharing = q.shape[1] // k.shape[1]
    shape, keys, values = k.shape, *(each.repeat(sharing, 1) for each in (k, v))
    logits = scale * q @ keys.swapaxes(-1, -2)
    if causal:
        logits = np.where(np.tril(np.ones(logits.shape[-2:], bool)), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    factors = 1.0 if keep is None else keep * kept
    out = (weights * factors) @ values
    if d_out is None:
        return [out]
    d_logits = weights * (factors * (d_out @ values.swapaxes(-1, -2)) - (d_out * out).sum(-1, keepdims=True)) * scale
    dk, dv = d_logits.swapaxes(-1, -2) @ q, (weights * factors).swapaxes(-1, -2) @ d_out
    grouped = (shape[0], shape[1], sharing, *shape[2:])
    return [out, d_logits @ keys, dk.reshape(grouped).sum(2), dv.reshape(grouped).sum(2)]


def emulated(q: Any, k: Any, v: Any, causal: bool, scale: float, dtype: str) -> Any:
    """Return the output as a kernel has it that adds in float32, and rounds weights to a half type."""
    wide = [each.astype(np.float32) for each in (q, k, v)]
    logits = np.zeros((*q.shape[:-1], k.shape[-2]), np.float32)
    for place in range(q.shape[-1]):  # one product after another
        logits += wide[0][..., place, None] * wide[1][..., None, :, place]
    logits *= np.float32(scale)
    if causal:
        logits[..., ~np.tril(np.ones(logits.shape[-2:], bool))] = -np.inf
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    rounded = weights if dtype == "float32" else dtypes.quantise(weights.astype(np.float64), dtype).astype(np.float32)
    total = np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
    for place in range(k.shape[-2]):
        total += rounded[..., place, None] * wide[2][..., None, place, :]
    return dtypes.quantise((total / weights.sum(-1, keepdims=True)).astype(np.float64), dtype)


class NumpyAttention(AttentionWorkload):
    """A workload without options whose truth needs no PyTorch."""

    def exact(self, arrays: list[Any]) -> Any:
        assert not (self.mask or self.dropout)
        tensors = [dtypes.decode(array, self.dtype).astype(np.float64) for array in arrays]
        q, k, v, *d_out = tensors
        if self.positions is not None:
            every = self._among_all(q, k)
            found = exact(every, k, v, self.causal, self.scale)
            return {"": found[0][:, :, self.positions]}
        return dict(zip(self.parts, exact(q, k, v, self.causal, self.scale, *d_out), strict=True))

    def emulations(self, arrays: list[Any], precision: Sequence[str] = (), realisation: int = 0) -> Any:
        values = self.exact(arrays)
        return {name: dtypes.quantise(each, self.dtype) for name, each in values.items()}, False

    def _among_all(self, q: Any, k: Any) -> Any:
        """Return as many rows as there are keys, with those of Q at their positions."""
        rows = np.zeros((*q.shape[:2], max(k.shape[2], int(self.positions[-1]) + 1), q.shape[3]))
        rows[:, :, self.positions] = q
        return rows
