"""Small pictures and coloured words: HTML and SVG, in which everything from records is escaped. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median

from markupsafe import Markup, escape

from reports.attribute.causes import Entry
from reports.model import CorrectnessSide, Latency, LatencySide
from reports.text import percent, rate_interval, rate_text, ratio_interval, samples_text, time_text, words

CROSS, CHECK, ABOUT = "\N{MULTIPLICATION X}", "\N{CHECK MARK}", "\N{ALMOST EQUAL TO}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
SYMBOLS = {
    "broken": "!!",
    "regressed": CROSS,
    "no_longer_supported": "\N{CIRCLED DIVISION SLASH}",
    "failing": CROSS,
    "less_exact": "\N{NOT ALMOST EQUAL TO}",
    "more_exact": ABOUT,
    "meaning_changed": "\N{NOT EQUAL TO}",
    "other_draws": "\N{NOT EQUAL TO}",
    "other_type": "\N{NOT EQUAL TO}",
    "moved_about_the_threshold": ABOUT,
    "undecided": "?",
    "improved": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "fixed": CHECK,
    "newly_supported": "+",
    "unsupported": "\N{EN DASH}",
    "pass": CHECK,
    "no_data": "\N{EN DASH}",
    "not_run": "\N{WHITE CIRCLE}",
}
STRIP_WIDTH, STRIP_HEIGHT = 160, 26
INTERVAL_WIDTH, INTERVAL_HEIGHT = 120, 16
NUMBER_WIDTH = 36  # beside it
BAR_WIDTH = 48
LEAST_REACH, MOST_REACH = math.log(1.1), math.log(4)  # of the axis of ratios, to either side


@lru_cache(maxsize=256)
def badge(verdict: str, text: str = "", symbol: str = "") -> Markup:
    """Word, sign and colour: colour alone carries nothing."""
    html = Markup('<span class="badge v-{}"><span aria-hidden="true">{}</span> {}</span>')
    return html.format(verdict, symbol or SYMBOLS[verdict], text or words(verdict))


def dim(text: str, title: str = "") -> Markup:
    if title:
        return Markup('<span class="dim" title="{}">{}</span>').format(title, text)
    return Markup('<span class="dim">{}</span>').format(text)


def rate_cell(side: CorrectnessSide) -> Markup:
    if side.rate is None:
        return dim(words(side.status))
    return Markup('<span class="num">{}</span> ').format(rate_text(side.rate)) + dim(rate_interval(side.rate))


def median_cell(side: LatencySide) -> Markup:
    if side.median_us is None:
        return dim(words(side.status))
    return Markup('<span class="num">{}</span>').format(time_text(side.median_us))


def wrong_tag(latency: Latency, names: Mapping[str, str]) -> Markup:
    """A time of a wrong output is marked wherever it is shown. `names`: of environments."""
    wrong = [names[side.environment] for side in (latency.baseline, latency.this) if side.wrong_output]
    if not wrong:
        return Markup("")
    where = "both" if len(wrong) == 2 else wrong[0]
    return Markup(' <span class="tag wrong">{} wrong output in {}</span>').format(CROSS, where)


def share_cell(share: float | None, why: str) -> Markup:
    """A share of the device's peak as a number and a bar; beyond it the bar is full."""
    if share is None:
        return dim("\N{EM DASH}", why)
    return share_bar(share) + Markup(f' <span class="num">{percent(share)}</span>')


def share_bar(share: float, width: int = BAR_WIDTH) -> Markup:
    return _bar(f"M0 4H{max(1, round(width * min(share, 1.0)))}", width)


def _bar(path: str, width: int, middle: str = "") -> Markup:
    return Markup(
        f'<svg class="bar" width="{width}" height="8" aria-hidden="true"><path class="track" d="M0 4H{width}"/>'
        f'<path class="fill" d="{path}"/>{middle}</svg>'
    )


def bar(entry: Entry) -> Markup:
    """A share between -1 and 1 as a bar: one that can go below zero starts in the middle."""
    if entry.share is None:
        return Markup("")
    if "/" in entry.text:
        return share_bar(entry.share)
    share, half = max(-1.0, min(1.0, entry.share)), BAR_WIDTH // 2
    return _bar(f"M{half} 4H{round(half + half * share)}", BAR_WIDTH, f'<path class="axis" d="M{half} 0v8"/>')


def _dots(values: Sequence[float], place: float, low: float, scale: float) -> str:
    return "".join(f"M{4 + (value - low) * scale:.0f} {place:g}h0" for value in values)


def strip(
    baseline: Sequence[float],
    this: Sequence[float],
    names: Sequence[str],
    width: int = STRIP_WIDTH,
    height: int = STRIP_HEIGHT,
) -> Markup:
    """Launch medians on one scale: the baseline above, this environment below, a bar at each one's median. `names`: of
    both.

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
    above, below = (f"{name}, {samples_text(values)}" for name, values in zip(names, (baseline, this), strict=True))
    return Markup(
        f'<svg class="strip" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>launch medians: above, {escape(above)}; below, {escape(below)}</title>"
        f'<path class="axis" d="M0 {height // 2}H{width}"/>{"".join(parts)}</svg>'
    )


def reach(ratios: Iterable[float | None]) -> float:
    """Half the width of the logarithmic axis that all rows of a page share: all fit, up to a factor of four."""
    return min(MOST_REACH, max([LEAST_REACH, *(abs(math.log(ratio)) for ratio in ratios if ratio)]))


def ratio_picture(
    ratio: float | None, low: float | None, high: float | None, widest: float, min_effect: float = 0.0
) -> Markup:
    """A ratio and its interval on a logarithmic axis around 1, with the minimum effect as a band and a number."""
    if ratio is None:
        return Markup("")

    def place(value: float) -> float:
        return INTERVAL_WIDTH * (0.5 + 0.48 * max(-1.0, min(1.0, math.log(value) / widest)))

    half, width, parts, title = INTERVAL_HEIGHT // 2, INTERVAL_WIDTH, "", ratio_interval(ratio, low, high)
    if min_effect:
        least, most = 1 / (1 + min_effect), 1 + min_effect
        title += f"; band, too small to count: {least:.3f} to {most:.3f}"
        left, right = place(least), place(most)
        parts = f'<rect class="band" x="{left:.1f}" width="{right - left:.1f}" height="{INTERVAL_HEIGHT}"/>'
        parts += f'<text x="{width + 4}" y="12">{PLUS_MINUS}{100 * min_effect:.3g}%</text>'
        width += NUMBER_WIDTH
    parts += f'<path class="axis" d="M{INTERVAL_WIDTH // 2} 0v{INTERVAL_HEIGHT}"/>'
    if low is not None and high is not None:
        parts += f'<path class="ci" d="M{place(low):.0f} {half}H{place(high):.0f}"/>'
    return Markup(
        f'<svg class="forest" viewBox="0 0 {width} {INTERVAL_HEIGHT}" width="{width}" '
        f'height="{INTERVAL_HEIGHT}" role="img"><title>{title}</title>{parts}'
        f'<path class="dt" d="M{place(ratio):.0f} {half}h0"/></svg>'
    )
