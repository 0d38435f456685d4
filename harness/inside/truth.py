"""The truth: attention in float64, written out, never through SDPA; and the cost of rounding it.

A head at a time and in blocks of rows, so memory stays bounded at any sequence length. Files in a folder,
keyed by the digest of the input bytes and of the problem, make it a one-time cost: all environments share
them, so all are judged by the very same numbers.
"""

import hashlib
import os
import tempfile

import numpy as np

from . import dtypes, protocol, rounding

BLOCK_ELEMENTS = 1 << 19  # logits held at a time: 4 MiB of float64
VERSION = 1  # of what the files hold and how the cost is defined; part of their key


def attention(q, k, v, causal, scale, dtype, each=map):
    """Float64 softmax(scale Q K^T) V of stored [batch, head, row, column] arrays, and its rounding cost.

    Returns (truth, cost): truth is float64 of the output's shape, cost is `rounding.cost`. `causal` masks the
    keys after the row. `each` runs a function on every head: as `map` does, or a pool's.
    """
    batch, heads, rows, _ = q.shape
    truth = np.empty((batch, heads, rows, v.shape[3]))
    emulated = np.empty_like(truth)
    # Each block of the float32 emulation walks over all keys one by one: few large blocks.
    step = max(1, (4 * BLOCK_ELEMENTS if dtype == "float32" else BLOCK_ELEMENTS) // k.shape[2])

    def one(head):
        queries, keys, values = (dtypes.decode(tensor[head], dtype) for tensor in (q, k, v))
        for start in range(0, rows, step):
            block = slice(start, min(start + step, rows))
            truth[head][block], emulated[head][block] = _rows(queries[block], keys, values, causal, start, scale, dtype)

    list(each(one, np.ndindex(batch, heads)))
    return truth, rounding.cost(emulated, truth, dtype)


def _rows(queries, keys, values, causal, first, scale, dtype):
    """Truth and emulation of some rows of a head, the first of which has the number `first`."""
    hidden = None
    if causal:
        last = min(first + len(queries), len(keys))
        keys, values = keys[:last], values[:last]
        hidden = np.arange(last)[None, :] > np.arange(first, first + len(queries))[:, None]
    exact = values.astype(np.float64)
    logits = (queries.astype(np.float64) @ keys.T.astype(np.float64)) * scale
    if causal:
        logits[hidden] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    truth = (weights @ exact) / weights.sum(axis=1, keepdims=True)
    if dtype == "float32":
        return truth, rounding.emulate_single(queries, keys, values, scale, hidden)
    return truth, rounding.emulate(logits, exact, dtype)


class Cache:
    """Truths on disk, each with its rounding cost and its own digest; damaged files are computed again.

    `each`: how to compute them, see `attention`.
    """

    def __init__(self, folder, each=map):
        self.folder = folder
        self.each = each

    def path(self, inputs_sha256, problem):
        key = protocol.digest([VERSION, inputs_sha256, problem])
        return os.path.join(self.folder, key[:2], key + ".truth")

    def load(self, path, shape):
        """(truth, its SHA-256, cost), or None."""
        try:
            with open(path, "rb") as file:
                cost = float.fromhex(file.readline(64).decode("ascii").strip())
                sha256 = file.readline(80).decode("ascii").strip()
                data = file.read()
        except (OSError, ValueError):
            return None
        if len(data) != 8 * int(np.prod(shape)) or hashlib.sha256(data).hexdigest() != sha256:
            return None
        return np.frombuffer(data).reshape(shape), sha256, cost

    def save(self, path, truth, cost):
        """Atomic, but not forced to the disk: a file cut by a crash is found out by its digest."""
        data = np.ascontiguousarray(truth).tobytes()
        sha256 = hashlib.sha256(data).hexdigest()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(f"{float(cost).hex()}\n{sha256}\n".encode("ascii"))
                file.write(data)
            os.chmod(temporary, 0o644)  # in a container another user takes it out
            os.replace(temporary, path)
        except OSError:  # a full disk costs time, not the result
            if os.path.exists(temporary):
                os.unlink(temporary)
        return sha256

    def get(self, inputs_sha256, problem, shape, compute):
        """(truth, its SHA-256, cost) from the folder, else from compute() -> (truth, cost)."""
        path = self.path(inputs_sha256, problem)
        found = self.load(path, shape)
        if found is None:
            truth, cost = compute()
            found = truth, self.save(path, truth, cost), cost
        return found
