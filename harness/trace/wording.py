"""How a trace's answers name operators. Pure."""

from __future__ import annotations

Said = list[tuple[str, str]]  # label and sentence


def named(kind: str) -> str:
    """An operator, or what was replaced by what."""
    before, arrow, after = kind.partition(" -> ")
    if not arrow:
        return before
    if before == after:
        return f"{before}, called in another order, or with other shapes or arguments"
    if "nothing" in (before, after):
        return (
            f"{after}, which only the bad version calls"
            if before == "nothing"
            else (f"{before}, which only the good version calls")
        )
    return f"{after} in place of {before}"
