"""Outputs of a launch that have other bits than were validated: left as bytes, for who never loads the candidate.

A kernel whose sums run in another order each time has other bits in every call. Whether they are right is not asked
where the candidate runs, since no right answer may lie in its memory: `appraise` does, afterwards, by the rule of
validation. So nothing is to be had from wavering in validation: what is checked in a launch passes the same rule, and
its inputs are exchanged in every launch.
"""

from __future__ import annotations

import os
from typing import Any

from . import tensors, wire


class Kept:
    """Of one launch. Without a folder other bits are a fault, as where determinism is asked for."""

    def __init__(self, request: wire.TimeRequest) -> None:
        self.folder, self.left_bytes = request.out, request.most_bytes
        self.rows: list[dict[str, Any]] = []
        self.known: dict[tuple[str, int, str], str] = {}  # (workload, trial, digest) to the file that holds it

    def add(self, output: Any, row: dict[str, Any], must: bool) -> bool:
        """Whether it will be judged, or need not be: what does not fit."""
        if not self.folder:
            return False
        key = row["workload"], row["trial"], tensors.sha256(output)
        if key not in self.known:
            size_bytes = output.numel() * output.element_size()
            if size_bytes > self.left_bytes and not must:
                return True
            self.left_bytes -= size_bytes
            self.known[key] = f"{len(self.known)}.bin"
            os.makedirs(self.folder, exist_ok=True)  # a sandbox has only what it was given, and this starts empty
            with open(os.path.join(self.folder, self.known[key]), "wb") as file:
                file.write(tensors.to_bytes(output))
        dtype, shape = tensors.dtype_name(output), list(output.shape)
        self.rows.append({**row, "file": self.known[key], "dtype": dtype, "shape": shape})
        return True


class Outputs:
    """Of one target on one workload."""

    def __init__(self, kept: Kept, workload_id: str, target: str) -> None:
        self.kept, self.workload_id, self.target = kept, workload_id, target
        self.other_bits = 0

    def keep(self, output: Any, trial: int, where: str, must: bool = False) -> bool:
        """As `Kept.add`. `where` is said of it, should it turn out to be wrong."""
        self.other_bits += 1
        row = {"workload": self.workload_id, "target": self.target, "trial": trial, "where": where}
        return self.kept.add(output, row, must)
