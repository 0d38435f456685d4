"""The truth: attention in float64, written out, never through SDPA; and the error scale beside it.

A head at a time and in blocks of rows, so memory stays bounded at any sequence length. Files in a folder,
keyed by the digest of the input bytes and of the problem, make it a one-time cost: all environments share
them, so all are judged by the very same numbers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, NamedTuple, Sequence, Tuple

import numpy as np

from . import attention_emulation, dtypes, inputs, protocol, rounding
from .inputs import Each, Shape
from .rounding import Norms

if TYPE_CHECKING:
    from .dtypes import Array

    Compute = Callable[[Array | None], Tuple[Array, Iterable[Array]]]

BLOCK_ELEMENTS = 1 << 19  # logits held at a time: 4 MiB of float64
VERSION = 3  # of what the files hold and how the error scale is defined; part of their key
DRAWN = 20240518  # the generator's key for the errors of declared accumulators


class Exact(NamedTuple):
    values: Array  # float64, of the output's shape
    sha256: str
    error_scale: rounding.ErrorScale


def attention(
    q: Array,
    k: Array,
    v: Array,
    causal: bool,
    scale: float,
    dtype: str,
    each: Each = map,
    precision: Sequence[str] = (),
    realisation: int = 0,
    positions: Array | None = None,
    mask: Array | None = None,
    keep: Array | None = None,
    dropout: float = 0.0,
    emulates: bool = True,
) -> tuple[Array, Array]:
    """Float64 softmax(scale Q K^T) V of stored [batch, head, row, column] arrays, and its emulation in the dtype.

    Heads of Q share those of K and V in turn, as many each, where there are fewer (grouped-query attention).
    `positions` [rows] are those of Q's rows in the sequence, ascending; None: all of them. `causal` masks the keys
    after a row's position, counted from the first key, however many keys there are: as `is_causal` does in PyTorch.
    `mask` [batch, 1 or heads, rows, keys]: booleans, true where a key is seen, or what is added to the logits, stored.
    The output of a row that sees no key is zero: of no values none is the mean. `keep` [batch, heads, rows, keys] are
    the draws of `dropout`: weights that are kept count 1 / (1 - dropout) times, the others not.
    `each` runs a function on every head. Operands of declared TF32 are rounded in one `realisation` and cut off in the
    next. Without `emulates` the emulation is zero, and costs nothing.
    """
    batch, heads, rows, _ = q.shape
    positions = np.arange(rows) if positions is None else positions
    truth = np.empty((batch, heads, rows, v.shape[3]))
    emulated = np.empty_like(truth)
    step = rows_at_once(dtype, k.shape[2])

    def one(head: tuple[int, int]) -> None:
        queries, keys, values = of_head(q, k, v, head, dtype)
        arithmetic: Callable[..., Any] = _nothing
        if emulates:
            emulate = attention_emulation.emulate_single if dtype == "float32" else attention_emulation.emulate
            own = declared(dtype, precision, realisation, head[0] * heads + head[1])
            arithmetic = functools.partial(emulate, **own)
        for start in range(0, rows, step):
            block = slice(start, min(start + step, rows))
            part = queries[block], keys, values, positions[block] if causal else None, scale
            kept = None if keep is None else keep[head][block] / (1 - dropout)
            masked = of_rows(mask, head, block, dtype)
            truth[head][block], emulated[head][block] = _rows(*part, arithmetic, masked, kept)

    list(each(one, np.ndindex(batch, heads)))
    return truth, emulated


def rows_at_once(dtype: str, keys: int) -> int:
    """Of a block. Each one of the float32 emulation walks over all keys one by one: few large blocks."""
    return max(1, (4 * BLOCK_ELEMENTS if dtype == "float32" else BLOCK_ELEMENTS) // keys)


def of_head(q: Array, k: Array, v: Array, head: tuple[int, int], dtype: str) -> Iterator[Array]:
    """Q, K and V of (batch entry, head of Q)."""
    batch, number = head
    shared = batch, number * k.shape[1] // q.shape[1]
    return (dtypes.decode(array, dtype) for array in (q[head], k[shared], v[shared]))


def of_rows(mask: Array | None, head: tuple[int, int], rows: slice, dtype: str) -> Array | None:
    """A mask's rows of (batch entry, head), decoded."""
    if mask is None:
        return None
    found: Array = mask[head[0], head[1] % mask.shape[1], rows]
    return found if found.dtype == bool else dtypes.decode(found, dtype)


def _nothing(*_rows: object) -> float:
    return 0.0


def declared(dtype: str, precision: Sequence[str], realisation: int, head: int) -> dict[str, Any]:
    """How one head is emulated: what the functions of `attention_emulation` take beside their arrays."""
    if dtype == "float32":
        truncate = realisation % 2 == 1
        if rounding.TF32_MATMUL in precision:
            return {"operand": lambda array: rounding.tf32(array, truncate)}
        return {"add": attention_emulation.accumulate_thrice} if rounding.TF32X3_MATMUL in precision else {}
    drawn = [0]

    def sums(shape: Shape) -> Array:
        drawn[0] += 1
        return inputs.deviates(DRAWN, head, drawn[0], int(np.prod(shape))).reshape(shape)

    return {"dtype": dtype, "sums": sums if rounding.FLOAT16_SUMS in precision else None}


def _rows(
    queries: Array,
    keys: Array,
    values: Array,
    last: Array | None,
    scale: float,
    arithmetic: Callable[..., Any],
    mask: Array | None,
    kept: Array | None,
) -> tuple[Array, Any]:
    """Truth and emulation of some rows of a head. `last` [rows], ascending: the last key that each sees."""
    if last is not None:
        count = min(int(last[-1]) + 1, len(keys))
        keys, values = keys[:count], values[:count]
    hidden, bias = masked(last, mask, len(keys))
    hidden, empty = seen(hidden, len(queries))
    exact = values.astype(np.float64)
    logits = logits_of(queries.astype(np.float64), keys.astype(np.float64), scale, hidden, bias)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    kept = None if kept is None else kept[:, : len(keys)]
    truth = ((weights if kept is None else weights * kept) @ exact) / weights.sum(axis=1, keepdims=True)
    emulated = arithmetic(queries, keys, values, scale, hidden, bias, kept)
    return np.where(empty, 0.0, truth), np.where(empty, 0.0, emulated)


def masked(last: Array | None, mask: Array | None, keys: int) -> tuple[Array | None, Array | None]:
    """(what is hidden, what is added) of the first so many keys."""
    hidden = None if last is None else np.arange(keys)[None, :] > last[:, None]
    if mask is None:
        return hidden, None
    mask = mask[:, :keys]
    if mask.dtype != bool:
        return hidden, mask
    return ~mask if hidden is None else hidden | ~mask, None


def seen(hidden: Array | None, rows: int) -> tuple[Array | None, Any]:
    """(what is hidden, with all keys left to rows that see none; which rows these are [rows, 1]): so there are numbers
    everywhere, in place of which stand zeros."""
    if hidden is None:
        return None, np.zeros((rows, 1), bool)
    empty: Any = hidden.all(axis=1, keepdims=True)
    return hidden & ~empty, empty


def logits_of(queries: Array, keys: Array, scale: float, hidden: Array | None, bias: Array | None) -> Array:
    logits: Array = (queries @ keys.T) * scale
    if bias is not None:
        logits += bias
    if hidden is not None:
        logits[hidden] = -np.inf
    return logits


class Cache:
    """Truths on disk with their digests, and error scales beside them; damaged files are computed again.

    `each`: how to compute them, see `attention`.
    """

    def __init__(self, folder: str, each: Each = map) -> None:
        self.folder = folder
        self.each = each

    def path(self, inputs_sha256: str, problem: object) -> str:
        key = protocol.digest([VERSION, inputs_sha256, problem])
        return os.path.join(self.folder, key[:2], key + ".truth")

    def get(
        self, inputs_sha256: str, problem: object, shape: Shape, dtype: str, precision: Sequence[str], compute: Compute
    ) -> Exact:
        """The `Exact` of an output of that shape and dtype, from the folder as far as it is there.

        compute(the truth where it is known, else None) gives the truth and an iterable of emulated outputs.
        """
        path = self.path(inputs_sha256, problem)
        unit = "{}.{}.unit".format(path[: -len(".truth")], "+".join(precision) or "plain")
        found = self.load(path, shape)
        emulated: Iterable[Array] | None = None
        if found is None:
            truth, emulated = compute(None)
            found = truth, self.save(path, truth)
        truth, sha256 = found
        ruler = rounding.Ruler(truth, dtype)
        known = _load_unit(unit, sha256)
        if known is None:
            known = rounding.measure(compute(truth)[1] if emulated is None else emulated, ruler)
            self._write(unit, _unit_bytes(*known, sha256))
        return Exact(truth, sha256, rounding.ErrorScale(*known, ruler))

    def load(self, path: str, shape: Shape) -> tuple[Array, str] | None:
        """(truth, its SHA-256), or None."""
        try:
            with open(path, "rb") as file:
                sha256 = file.readline(80).decode("ascii").strip()
                data = file.read()
        except (OSError, ValueError):
            return None
        if len(data) != 8 * int(np.prod(shape, dtype=np.int64)) or hashlib.sha256(data).hexdigest() != sha256:
            return None
        return np.frombuffer(data, np.float64).reshape(shape), sha256

    def save(self, path: str, truth: Array) -> str:
        data = np.ascontiguousarray(truth).data
        sha256 = hashlib.sha256(data).hexdigest()
        self._write(path, f"{sha256}\n".encode("ascii"), data)
        return sha256

    def _write(self, path: str, *parts: bytes | memoryview) -> None:
        """Atomic, but not forced to the disk: a file cut by a crash is found out by its digest. What cannot be written,
        for want of space or because the folder is another's, costs time, not the result."""
        with contextlib.suppress(OSError):
            protocol.write_atomically(path, *parts, sync=False)

    def note(self, path: str, make: Callable[[], Any]) -> Any:
        """A JSON value from a file in the folder, else from make()."""
        path = os.path.join(self.folder, path)
        try:
            return protocol.read_json(path)
        except (OSError, ValueError):
            value = make()
            self._write(path, json.dumps(value, allow_nan=False).encode())
            return value


def _unit_bytes(costs: Norms, leaves_range: bool, sha256: str) -> bytes:
    known = {"truth": sha256, "costs": {k: v.hex() for k, v in costs.items()}, "leaves_range": leaves_range}
    return json.dumps(known).encode()


def _load_unit(path: str, sha256: str) -> tuple[Norms, bool] | None:
    """Return (costs, leaves_range) of that truth, or None."""
    try:
        value = protocol.read_json(path)
        costs = {name: float.fromhex(value["costs"][name]) for name in rounding.NORMS}
        return (costs, bool(value["leaves_range"])) if value["truth"] == sha256 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
