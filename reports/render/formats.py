"""Numbers and small pictures for people: text, and SVG that holds nothing but numbers of ours. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median

from markupsafe import Markup

from reports.attribute.causes import Entry
from reports.compare.gpus import Card
from reports.compare.kernelbench import Solution
from reports.model import CorrectnessSide, Latency, LatencySide, Rate, Rates
from reports.render.durations import ABSENT, time_text, unit_of

TIMES = "\N{MULTIPLICATION SIGN}"
SYMBOLS = {
    "broken": "!!",
    "regressed": "\N{MULTIPLICATION X}",
    "no_longer_supported": "\N{CIRCLED DIVISION SLASH}",
    "failing": "\N{MULTIPLICATION X}",
    "less_exact": "\N{NOT ALMOST EQUAL TO}",
    "more_exact": "\N{ALMOST EQUAL TO}",
    "moved_about_the_threshold": "\N{ALMOST EQUAL TO}",
    "undecided": "?",
    "improved": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "fixed": "\N{CHECK MARK}",
    "newly_supported": "+",
    "unsupported": "\N{EN DASH}",
    "pass": "\N{CHECK MARK}",
}
STRIP_WIDTH, STRIP_HEIGHT = 160, 26
FOREST_WIDTH, FOREST_HEIGHT = 120, 16
BAR_WIDTH = 48


def markdown(text: str) -> str:
    """Text as Markdown shows it, and nothing else: no markup, no mention, no second column."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>|#@!~&])", r"\\\1", flat)


def markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(markdown, cells)) + " |"


def short(text: str, length: int = 120) -> str:
    """A message where there is room for its beginning; the whole stands with the row's evidence."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def words(verdict: str) -> str:
    return verdict.replace("_", " ")


def interval_text(side: LatencySide | None) -> str:
    """13.80 us [13.77, 13.91]: a median of launch medians and its interval, or why there is none."""
    if side is None or side.median_us is None:
        return ABSENT if side is None else side.message or words(side.status)
    text = time_text(side.median_us)
    if side.low_us is None or side.high_us is None:
        return f"{text} (no interval)"
    size, _, digits = unit_of(side.median_us)
    low, high = (f"{value / size:.{3 if digits is None else digits}f}" for value in (side.low_us, side.high_us))
    return f"{text} [{low}, {high}]"


def speedup_text(solution: Solution) -> str:
    """1.31x [1.28, 1.35]: over the reference, above 1 is faster."""
    if solution.speedup is None:
        return "correct; no times"
    text = f"{solution.speedup:.3g}{TIMES}"
    if solution.low is None or solution.high is None:
        return f"{text} (no interval)"
    return f"{text} [{solution.low:.3g}, {solution.high:.3g}]"


def card_text(card: Card) -> str:
    """What a reader must know of a GPU to compare its times with another's."""

    def state(value: bool | None) -> str:
        return "not recorded" if value is None else "on" if value else "off"

    parts = [
        card.name,
        f"driver {card.driver}",
        f"{card.memory_bytes / (1 << 30):.0f} GiB",
        f"ECC {state(card.ecc)}",
        f"MIG {state(card.mig)}",
    ]
    parts += [f"power limit {card.power_limit_w:.0f} W"] if card.power_limit_w else []
    parts += [f"SM clock up to {card.max_sm_mhz} MHz"] if card.max_sm_mhz else []
    return ", ".join(parts)


def ceiling_text(card: Card) -> str:
    """What it reached in this run, or why that is not known."""
    if card.ceiling is None:
        return card.ceiling_message
    found = card.ceiling
    product = f" ({found.matmul_size}\N{SUPERSCRIPT THREE})" if found.matmul_size else ""
    parts = [f"{value:.0f} TFLOP/s in a {dtype} product{product}" for dtype, value in found.matmul_tflops.items()]
    parts += [f"{found.copy_gbps:.0f} GB/s in a copy"] if found.copy_gbps else []
    return ", ".join(parts) or "nothing was measured"


def tally_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {words(verdict)}" for verdict, count in counts.items())


def rate_text(rate: Rate | None) -> str:
    return f"{rate.passed}/{rate.trials}" if rate else ABSENT


def rate_interval(rate: Rate | None) -> str:
    return f"{rate.low:.0%}\N{EN DASH}{rate.high:.0%}" if rate else ""


def number(value: float | None, digits: int = 3) -> str:
    return ABSENT if value is None else f"{value:.{digits}g}"


def digits(value: float | None) -> str:
    """Three significant digits, zeros at the end included, for columns."""
    return ABSENT if value is None else f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"


def flop_rate(tflops: float | None) -> str:
    """Achieved floating-point operations per second, in the unit that keeps three digits readable."""
    if tflops is None:
        return ABSENT
    return f"{tflops:.3g} T" if tflops >= 1 else f"{tflops * 1e3:.3g} G"


def rates_text(found: Rates) -> str:
    """Both rates with their shares, or why there is no share."""
    parts = []
    for value, unit, share in ((found.tflops, "TFLOP/s", found.tflops_share), (found.gbps, "GB/s", found.gbps_share)):
        if value is not None:
            parts.append(f"{value:.3g} {unit}" + (f" ({percent(share)} of the ceiling)" if share is not None else ""))
    return "; ".join([*parts, *([found.message] if found.message else [])]) or ABSENT


def share_cell(share: float | None, why: str) -> Markup:
    """A share of a ceiling as a number and a bar; beyond it the bar is full."""
    if share is None:
        return Markup('<span class="dim" title="{}">\N{EM DASH}</span>').format(why)
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


def percent(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def change_text(latency: Latency) -> str:
    """1.031x [1.022, 1.040]: the ratio to the baseline, never without its interval where one exists."""
    if latency.ratio is None:
        return ABSENT
    return ratio_interval(latency.ratio, latency.low, latency.high)


def ratio_interval(ratio: float, low: float | None, high: float | None) -> str:
    text = f"{ratio:.3f}{TIMES}"
    return f"{text} (no interval)" if low is None or high is None else f"{text} [{low:.3f}, {high:.3f}]"


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
