"""The sequence lengths at which a wrong kernel is tried: around where a tile ends, and where a count leaves a type."""

from __future__ import annotations

import math
from dataclasses import dataclass

TILES = (16, 32, 64, 128)
LIMITS = (1 << 15, 1 << 16, 1 << 31, 1 << 32)  # how much can be counted in 16 and 32 bits, signed and not
MOST_SCORES = 1 << 26  # of all heads: what is longer takes too long to compute in float64


@dataclass(frozen=True, kw_only=True)
class Count:
    """Something that a kernel may count: so many for each row, or for each pair of rows."""

    what: str
    each: int
    pairs: bool = False

    def at(self, seq_len: int) -> int:
        return self.each * (seq_len**2 if self.pairs else seq_len)

    def last(self, limit: int) -> int:
        """The largest sequence length at which there are at most so many."""
        return math.isqrt(limit // self.each) if self.pairs else limit // self.each


def counts(batch: int, heads: int, head_dim: int) -> list[Count]:
    """The smallest first; those that are equal once."""
    every = [
        Count(what="elements of one head's K", each=head_dim),
        Count(what="elements of all heads' K", each=heads * head_dim),
        Count(what="elements of K", each=batch * heads * head_dim),
        Count(what="scores of one head", each=1, pairs=True),
        Count(what="scores of all heads", each=heads, pairs=True),
        Count(what="scores", each=batch * heads, pairs=True),
    ]
    return list({(count.each, count.pairs): count for count in reversed(every)}.values())[::-1]


def lengths(batch: int, heads: int, seq_len: int, head_dim: int) -> list[int]:
    """Its own first."""
    candidates = [seq_len, seq_len - 1, seq_len + 1, 1, *TILES]
    for tile in TILES:
        candidates += [seq_len // tile * tile, seq_len // tile * tile + tile]
    for count in counts(batch, heads, head_dim):
        for last in map(count.last, LIMITS):
            candidates += [last, last + 1] if last < seq_len else []
    return [length for length in dict.fromkeys(candidates) if length > 0 and batch * heads * length**2 <= MOST_SCORES]
