"""`probe`: one product on the device, to know that it answers, and rightly, after a process that faulted or hung."""

from __future__ import annotations

import torch

from . import protocol, wire

SIZE = 1024


def probe(_request: wire.EmptyRequest) -> dict[str, str]:
    """status ok, or crashed with a message."""
    try:
        ones = torch.ones(SIZE, SIZE, device="cuda")
        right = bool(((ones @ ones) == SIZE).all())
    except Exception as error:
        return {"status": protocol.CRASHED, "message": str(error).strip().splitlines()[0]}
    return {"status": protocol.OK if right else protocol.WRONG, "message": "" if right else "a product is wrong"}
