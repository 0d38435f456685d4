"""Attention kernels with one fault each, small and real: for tests of the experiments that should find it.

One source. The fault is chosen by a tunable, `FAULT: heap` in matrix.yaml, or for a process by FAULTY_KERNEL=heap.
"""

from __future__ import annotations

from pathlib import Path

FAULTS = (
    "none",
    "heap",
    "stack",
    "thread",
    "pool",
    "race",
    "remembers",
    "tail",
    "nomax",
    "abort",
    "hang",
    "unwritten",
    "narrow",
    "scale",
    "beyond",
)

_CHOSEN = "\n".join(f'#ifdef FAULT_{name.upper()}\n#define CHOSEN "{name}"\n#endif' for name in FAULTS)

SOURCE = f"{_CHOSEN}\n{Path(__file__).with_name('faulty_attention.cpp').read_text()}"
STRIDES = Path(__file__).with_name("ignores_strides.cpp").read_text()
