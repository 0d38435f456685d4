"""Timed orders of a target, as the process that measures it keeps them."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

from . import sampling

LATE_NS, LATE_COPIES, LATE_SHARE = 50_000, 0.5, 0.1  # by how much a delivery may exceed a copy: sum of the three


class Picked(NamedTuple):
    """An output of one call, with that call's inputs."""

    when: str  # a key of NOT_RIGHT
    arrays: list[Any]
    output: Any
    dtype: str


class Orders:
    """Timed orders of one kind, and what was looked at after some of them. Each is as likely to be judged."""

    def __init__(self) -> None:
        self.elapsed_ns: list[int] = []
        self.deliveries_ns: list[int] = []
        self.copies_ns: list[int] = []  # by the references, one after each delivery
        self.picked: list[Picked] = []

    def lateness(self) -> str:
        """What is wrong where to deliver outputs took longer than to copy as many."""
        delivered, copy = statistics.median(self.deliveries_ns), statistics.median(self.copies_ns)
        allowed = LATE_NS + LATE_COPIES * copy + LATE_SHARE * statistics.median(self.elapsed_ns)
        if delivered - copy <= allowed or not sampling.exceeds(self.deliveries_ns, self.copies_ns):
            return ""
        return (
            f"its outputs were not ready when it answered: reading them took {delivered / 1e3:.3g} us, and copying as "
            f"much takes {copy / 1e3:.3g} us"
        )
