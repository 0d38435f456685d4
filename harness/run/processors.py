"""Which processors a launch on the CPU may use: as many for the kernel as it was given threads, and as many for the
references.

A kernel that brings threads or processes of its own gains nothing by them then, and one that keeps processors busy
between its calls slows down its own. Where the machine has enough, the two have different cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TOPOLOGY = Path("/sys/devices/system/cpu")


class Bound(NamedTuple):
    """The numbers of processors; empty: any."""

    kernel: tuple[int, ...] = ()
    references: tuple[int, ...] = ()


def bind(threads: int, allowed: Iterable[int] | None = None, topology: Path = TOPOLOGY) -> Bound:
    """Of those that this process may use: the last, since the first serve the machine's interrupts. Where every core is
    wanted there is nothing to bind to."""
    cores = _cores(sorted(os.sched_getaffinity(0) if allowed is None else allowed), topology)
    if threads >= len(cores):
        return Bound()
    references = cores[-threads:]
    return Bound(cores[-2 * threads : -threads] if len(cores) >= 2 * threads else references, references)


def _cores(processors: Iterable[int], topology: Path) -> tuple[int, ...]:
    """Of each core its first processor."""
    found: dict[str, int] = {}
    for processor in processors:
        try:
            core = (topology / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text()
        except OSError:
            core = str(processor)
        found.setdefault(core, processor)
    return tuple(found.values())
