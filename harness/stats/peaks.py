"""Peaks of memory, as they are compared. Pure."""

from __future__ import annotations

FLOOR_BYTES = 1 << 20  # what is smaller counts as that much: small peaks differ by a page or a block


def counted(peak_bytes: float) -> float:
    """A peak as it is compared."""
    return float(max(peak_bytes, FLOOR_BYTES))
