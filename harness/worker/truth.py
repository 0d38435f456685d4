"""Ground truths in float64, and the error scale beside each.

Files in a folder, keyed by the digest of the input bytes and of what is computed, make them a one-time cost: all
environments that share the folder are judged by the very same numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING, Callable, Iterable, NamedTuple, Sequence, Tuple

import numpy as np

from . import protocol, rounding
from .inputs import Each, Shape
from .rounding import Norms

if TYPE_CHECKING:
    from .dtypes import Array

    Compute = Callable[[Array | None], Tuple[Array, Iterable[Array]]]

VERSION = 4  # of what the files hold and how the error scale is defined; part of their key


class Exact(NamedTuple):
    values: Array  # float64, of the output's shape
    sha256: str
    error_scale: rounding.ErrorScale


class Cache:
    """Truths on disk with their digests, and error scales beside them; damaged files are computed again.

    `each`: runs a function on every part, as `map` does.
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
