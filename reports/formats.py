"""Numbers and small pictures for people: text, and SVG that holds nothing but numbers of ours. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

from markupsafe import Markup

from reports.model import CorrectnessSide, Latency, LatencySide, Rate

ARROW = "\N{RIGHTWARDS ARROW}"
TIMES = "\N{MULTIPLICATION SIGN}"
ABSENT = "\N{EM DASH}"
SYMBOLS = {
    "broken": "!!",
    "regressed": "\N{MULTIPLICATION X}",
    "no_longer_supported": "\N{CIRCLED DIVISION SLASH}",
    "failing": "\N{MULTIPLICATION X}",
    "undecided": "?",
    "improved": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "fixed": "\N{CHECK MARK}",
    "newly_supported": "+",
    "unsupported": "\N{EN DASH}",
    "pass": "\N{CHECK MARK}",
}
STRIP_WIDTH, STRIP_HEIGHT = 160, 26
FOREST_WIDTH, FOREST_HEIGHT = 120, 16


def words(verdict: str) -> str:
    return verdict.replace("_", " ")


def time_text(microseconds: float | None) -> str:
    """Four significant digits, in the unit that keeps them before the thousands."""
    if microseconds is None:
        return ABSENT
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "\N{MICRO SIGN}s")):
        if microseconds >= size:
            value = microseconds / size
            return f"{value:.{max(0, 3 - math.floor(math.log10(value)))}f} {unit}"
    return f"{microseconds:.3g} \N{MICRO SIGN}s"


def rate_text(rate: Rate | None) -> str:
    return f"{rate.passed}/{rate.trials}" if rate else ABSENT


def rate_interval(rate: Rate | None) -> str:
    return f"{rate.low:.0%}\N{EN DASH}{rate.high:.0%}" if rate else ""


def number(value: float | None, digits: int = 3) -> str:
    return ABSENT if value is None else f"{value:.{digits}g}"


def flop_rate(tflops: float | None) -> str:
    """Achieved floating-point operations per second, in the unit that keeps three digits readable."""
    if tflops is None:
        return ABSENT
    return f"{tflops:.3g} T" if tflops >= 1 else f"{tflops * 1e3:.3g} G"


def percent(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def change_text(latency: Latency) -> str:
    """1.031x [1.022, 1.040]: the ratio to the baseline, never without its interval where one exists."""
    if latency.ratio is None:
        return ABSENT
    text = f"{latency.ratio:.3f}{TIMES}"
    if latency.low is None or latency.high is None:
        return f"{text} (no interval)"
    return f"{text} [{latency.low:.3f}, {latency.high:.3f}]"


@lru_cache(maxsize=64)
def badge(verdict: str) -> Markup:
    """Word, sign and colour: colour alone carries nothing."""
    text = Markup('<span class="badge v-{}"><span aria-hidden="true">{}</span> {}</span>')
    return text.format(verdict, SYMBOLS[verdict], words(verdict))


def rate_cell(side: CorrectnessSide) -> Markup:
    if side.rate is None:
        return Markup('<span class="dim">{}</span>').format(words(side.status))
    return Markup(
        f'<span class="num">{rate_text(side.rate)}</span> <span class="dim">{rate_interval(side.rate)}</span>'
    )


def median_cell(side: LatencySide) -> Markup:
    if side.median_us is None:
        return Markup('<span class="dim">{}</span>').format(words(side.status))
    return Markup(f'<span class="num">{time_text(side.median_us)}</span>')


def wrong_tag(latency: Latency) -> Markup:
    """A time of a wrong output is no time of the problem, and says so wherever it stands."""
    sides = (latency.baseline.wrong_output, latency.this.wrong_output)
    if not any(sides):
        return Markup("")
    where = "in both" if all(sides) else "in the baseline" if sides[0] else "here"
    return Markup(f' <span class="tag wrong">\N{MULTIPLICATION X} wrong output {where}</span>')


def _dots(values: Sequence[float], place: float, low: float, scale: float) -> str:
    return "".join(f"M{4 + (value - low) * scale:.0f} {place:g}h0" for value in values)


def strip(
    baseline: Sequence[float], this: Sequence[float], width: int = STRIP_WIDTH, height: int = STRIP_HEIGHT
) -> Markup:
    """Launch medians on one scale: the baseline above, this environment below, a bar at each one's median.

    A dot is a zero-length stroke with a round cap: one path for a side keeps thousands of plots small.
    """
    together = [*baseline, *this]
    if not together:
        return Markup("")
    low, high = min(together), max(together)
    scale = (width - 8) / (high - low) if high > low else 0.0
    upper, lower = round(height * 0.28), round(height * 0.72)
    parts = []
    for values, place, name in ((baseline, upper, "b"), (this, lower, "t")):
        if values:
            middle = 4 + (median(values) - low) * scale
            parts.append(f'<path class="d{name}" d="{_dots(values, place, low, scale)}"/>')
            parts.append(f'<path class="m{name}" d="M{middle:.0f} {place - 5}v10"/>')
    return Markup(
        f'<svg class="strip" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        "<title>launch medians: baseline above, this environment below</title>"
        f'<path class="axis" d="M0 {height // 2}H{width}"/>{"".join(parts)}</svg>'
    )


def forest_reach(rows: Sequence[Latency]) -> float:
    """Half width of the shared logarithmic axis: all intervals fit, up to a factor of four."""
    bounds = [abs(math.log(bound)) for row in rows for bound in (row.low, row.high) if bound]
    return min(max([*bounds, math.log(1.1)]), math.log(4))


def forest(latency: Latency, reach: float) -> Markup:
    """The interval of the ratio on a logarithmic axis around 1, with the minimum effect as a band."""
    if latency.ratio is None:
        return Markup("")

    def place(ratio: float) -> float:
        return FOREST_WIDTH * (0.5 + 0.48 * max(-1.0, min(1.0, math.log(ratio) / reach)))

    left, right = place(1 / (1 + latency.min_effect)), place(1 + latency.min_effect)
    middle, half = place(latency.ratio), FOREST_HEIGHT // 2
    line = ""
    if latency.low is not None and latency.high is not None:
        line = f'<path class="ci" d="M{place(latency.low):.0f} {half}H{place(latency.high):.0f}"/>'
    return Markup(
        f'<svg class="forest" viewBox="0 0 {FOREST_WIDTH} {FOREST_HEIGHT}" width="{FOREST_WIDTH}" '
        f'height="{FOREST_HEIGHT}" role="img"><title>interval of the ratio; the band is the minimum effect</title>'
        f'<rect class="band" x="{left:.1f}" width="{right - left:.1f}" height="{FOREST_HEIGHT}"/>'
        f'<path class="axis" d="M{FOREST_WIDTH // 2} 0v{FOREST_HEIGHT}"/>{line}'
        f'<path class="dt" d="M{middle:.0f} {half}h0"/></svg>'
    )
