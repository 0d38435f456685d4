"""How busy the machine was with other things, from /proc; None where it cannot be known."""

from __future__ import annotations

import os
from typing import Any

BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal: the fields of /proc/stat's first line


def read_processors() -> list[int] | None:
    """Ticks of all processors by kind, or None."""
    try:
        with open("/proc/stat") as file:
            return [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None


class LoadMeter:
    """Watches from its making until `read`."""

    def __init__(self) -> None:
        self.processors = read_processors()
        self.own = sum(os.times()[:4])

    def read(self) -> dict[str, Any]:
        """The fields of `Load`."""
        now = read_processors()
        share, steal = None, None
        if self.processors and now and len(now) == 8:
            spent = [after - before for before, after in zip(self.processors, now)]
            total = sum(spent)
            if total > 0:
                own = (sum(os.times()[:4]) - self.own) * os.sysconf("SC_CLK_TCK")
                others = sum(spent[kind] for kind in BUSY) - own
                share = min(1.0, max(0.0, others / total))
                steal = spent[7] / total
        return {
            "load_average": os.getloadavg()[0],
            "busy_share_others": share,
            "cpu_mhz": cpu_mhz(),
            "steal_share": steal,
        }


def cpu_mhz() -> float | None:
    """Mean clock of all processors as the kernel last saw it, or None."""
    try:
        with open("/proc/cpuinfo") as file:
            clocks = [float(line.split(":")[1]) for line in file if line.startswith("cpu MHz")]
    except (OSError, ValueError):
        return None
    return sum(clocks) / len(clocks) if clocks else None
