"""Times for people, in the unit that suits them. Pure."""

from __future__ import annotations

import math

ABSENT = "\N{EM DASH}"


def time_text(microseconds: float | None) -> str:
    """Four significant digits, in the unit that keeps them before the thousands."""
    if microseconds is None:
        return ABSENT
    size, unit, digits = unit_of(microseconds)
    return f"{microseconds / size:.{digits}f} {unit}" if digits is not None else f"{microseconds:.3g} {unit}"


def brief_time(microseconds: float, sign: str = "") -> str:
    """Three significant digits; of a difference with its sign, where that is "+"."""
    size, unit, _ = unit_of(float(f"{abs(microseconds):.3g}"))
    return f"{microseconds / size:{sign}.3g} {unit}"


def unit_of(microseconds: float) -> tuple[float, str, int | None]:
    """Size of the unit in microseconds, its name, and decimal places; None where it is below them all."""
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "\N{MICRO SIGN}s")):
        if microseconds >= size:
            return size, unit, max(0, 3 - math.floor(math.log10(microseconds / size)))
    return 1.0, "\N{MICRO SIGN}s", None
