"""The sequence lengths at which a wrong kernel is tried: around where a tile ends, and where a count leaves a type."""

from __future__ import annotations

import math

TILES = (16, 32, 64, 128)
LIMITS = (1 << 15, 1 << 16, 1 << 31, 1 << 32)  # how much can be counted in 16 and 32 bits, signed and not
MOST_SCORES = 1 << 26  # of all heads: what is longer takes too long to compute in float64


def last_lengths(batch: int, heads: int, head_dim: int) -> list[int]:
    """The largest sequence lengths at which something that a kernel may count stays within a limit: elements of K and
    scores, of one head, of all heads of a sequence, and of all sequences."""
    alike = dict.fromkeys((1, heads, batch * heads))
    elements = [limit // (each * head_dim) for each in alike for limit in LIMITS]
    return elements + [math.isqrt(limit // each) for each in alike for limit in LIMITS]


def lengths(batch: int, heads: int, seq_len: int, head_dim: int) -> list[int]:
    """Its own first."""
    candidates = [seq_len, seq_len - 1, seq_len + 1, 1, *TILES]
    for tile in TILES:
        candidates += [seq_len // tile * tile, seq_len // tile * tile + tile]
    for last in last_lengths(batch, heads, head_dim):
        candidates += [last, last + 1] if last < seq_len else []
    return [length for length in dict.fromkeys(candidates) if length > 0 and batch * heads * length**2 <= MOST_SCORES]
