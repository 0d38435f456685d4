"""Say at which sizes a kernel is wrong, and the smallest that was found. Pure."""

from __future__ import annotations

from harness.experiments.shrink import HEAD_DIM, LENGTH
from reports.attribute.facts.experiments import LengthTrials

NAMES = {LENGTH: "sequence length", "heads": "number of heads", "batch": "batch size", HEAD_DIM: "head dimension"}
MOST_LISTED = 12


def sizes_text(lengths: LengthTrials) -> str:
    """Return the sequence lengths at which it fails, and of how many that were tried."""
    right, wrong = lengths.right, lengths.wrong
    crashed = {point.crashed for point in lengths.points if point.right is False}
    how = "crashes" if crashed == {True} else "wrong, or crashes," if True in crashed else "wrong"
    if not right:
        return f"{how} at every length tried ({len(wrong)})"
    left = len(wrong) - MOST_LISTED
    more = f" and {left} more" if left > 0 else ""
    listed = ", ".join(map(str, wrong[:MOST_LISTED])) or "no length of the workload's other sizes"
    return f"{how} at {listed}{more}; right at {len(right)} of {len(right) + len(wrong)} lengths tried"


def reproduced_at(lengths: LengthTrials) -> str:
    """Return the smallest sizes that fail: the length always, of the others what is not the workload's own."""
    sizes = reversed([*(lengths.smallest or {}).items()])
    return ", ".join(f"{NAMES[name]} {n}" for name, n in sizes if name == LENGTH or n != lengths.own[name])
