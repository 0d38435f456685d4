"""Runs over time, as a page: where a time stepped, where a kernel became right or wrong, and every value. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from markupsafe import Markup

from harness.stats.medians import HOT
from harness.worker import protocol
from reports.compare.rows import KERNEL
from reports.history.index import Point
from reports.history.steps import LEAST_RUNS, Step, find_steps
from reports.render.templating import render_html
from reports.text import median_interval_text, time_text

PAGE = "history.html"
WIDTH, HEIGHT = 760, 250
LABELS = 6  # along the axis of runs
MARGIN = 0.06  # above and below, as a share of what the axis spans


@dataclass(kw_only=True)
class Series:
    """The points of one subject, workload, device, mode, machine and environment that have a time, and their steps."""

    environment: str
    points: list[Point] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass(kw_only=True)
class Chart:
    """All environments of a subject on one workload of one machine."""

    kind: str
    title: str
    machine: str
    series: list[Series]

    @property
    def picture(self) -> Markup:
        return draw(self.series)

    @property
    def steps(self) -> int:
        return sum(len(series.steps) for series in self.series)


class Change(NamedTuple):
    """What a run began: a step of a time, its ratio, or another status of a kernel."""

    point: Point
    before: Point
    ratio: float | None = None


class Changes(NamedTuple):
    """Those of one subject and environment that began with the same run, alike: on one workload or on several."""

    title: str
    text: str
    verdict: str
    word: str
    point: Point
    before: Point


class History:
    """`left_out`: why runs are not in it."""

    def __init__(self, points: Sequence[Point], left_out: Sequence[str] = ()) -> None:
        self.left_out = list(left_out)
        self.runs = list(dict.fromkeys(point.run for point in points))
        self.charts = charts(points)
        self.steps = [change for chart in self.charts for series in chart.series for change in _steps(series)]
        self.statuses = list(_statuses(points))
        self.changes = together([*self.steps, *self.statuses])

    @property
    def headline(self) -> str:
        if not self.runs:
            return "No run can be read." if self.left_out else "There is no finished run yet."
        steps, statuses = len(self.steps), len(self.statuses)
        series = sum(len(one.points) >= LEAST_RUNS for chart in self.charts for one in chart.series)
        runs = f"In {_count(len(self.runs), 'run')}"
        if not series:
            changed = _count(statuses, "change")
            return f"{runs}: {changed} of correctness. To find steps takes series of {LEAST_RUNS} runs."
        return (
            f"{runs}: {_count(steps, 'step')} in {_count(series, 'series', 'series')} of times, and "
            f"{_count(statuses, 'change')} of correctness."
        )

    @property
    def lines(self) -> list[str]:
        """The headline and each change, the newest first, as text."""
        left_out = [f"left out: {text}" for text in self.left_out]
        changes = [f"{change.title}: {change.text}, {where(change.point)}" for change in self.changes]
        return [self.headline, *left_out, *changes]


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def where(point: Point) -> str:
    commit = f", commit {point.commit_id}" if point.commit_id else ""
    return f"since run {point.run} ({point.created[:16].replace('T', ' ')}{commit})"


def charts(points: Iterable[Point]) -> list[Chart]:
    """Kernels before references, and what stepped before what did not."""
    groups: dict[tuple[str, ...], dict[str, Series]] = {}
    taken = set[tuple[str, ...]]()
    for point in points:
        key = (point.kind, point.subject, point.workload, point.device, point.mode, point.machine, point.settings)
        launches = (*key, point.environment, point.launched)
        if point.median_us is not None and launches not in taken:  # of an earlier run, and not measured anew
            taken.add(launches)
            own = groups.setdefault(key, {})
            own.setdefault(point.environment, Series(environment=point.environment)).points.append(point)
    found = []
    for own in groups.values():
        for series in own.values():
            series.steps = find_steps([point.median_us or 0 for point in series.points])
        first = next(iter(own.values())).points[0]
        chart = Chart(kind=first.kind, title=_title(first), machine=first.machine, series=list(own.values()))
        found.append(chart)
    return sorted(found, key=lambda chart: (chart.kind != KERNEL, not chart.steps, chart.title))


def _title(point: Point) -> str:
    hot = ", hot" if point.mode == HOT else ""
    return f"{point.subject} on {point.workload} ({point.device}{hot})"


def _steps(series: Series) -> Iterable[Change]:
    for step in series.steps:
        yield Change(series.points[step.at], series.points[step.at - 1], step.ratio)


def _statuses(points: Iterable[Point]) -> Iterable[Change]:
    """Where a kernel's validation ended otherwise than the one before it in the same environment."""
    last: dict[tuple[str, ...], Point] = {}
    for point in points:
        if point.status and point.mode != HOT:
            key = (point.subject, point.workload, point.device, point.environment, point.machine, point.settings)
            before = last.get(key)
            if before is not None and before.status != point.status:
                yield Change(point, before)
            last[key] = point


def together(changes: Iterable[Change]) -> list[Changes]:
    """The newest first."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    for change in changes:
        point, how = change.point, f"{change.before.status} {change.point.status}"
        if change.ratio is not None:
            how = "slower" if change.ratio > 1 else "faster"
        key = (point.created, point.run, point.kind, point.subject, point.device, point.mode, point.environment, how)
        groups.setdefault(key, []).append(change)
    return [_grouped(group) for _, group in sorted(groups.items(), reverse=True)]


def _grouped(group: Sequence[Change]) -> Changes:
    point, before, _ = group[0]
    workloads = point.workload if len(group) == 1 else f"{len(group)} workloads"
    hot = ", hot" if point.mode == HOT else ""
    ratios = [change.ratio for change in group if change.ratio is not None]
    if ratios:
        word, verdict = ("slower", "regressed") if ratios[0] > 1 else ("faster", "improved")
        low, high = sorted((abs(min(ratios) - 1), abs(max(ratios) - 1)))
        text = f"{low:.1%} to {high:.1%} {word}" if f"{low:.1%}" != f"{high:.1%}" else f"{low:.1%} {word}"
    else:
        known = {protocol.OK: ("right", "fixed"), protocol.WRONG: ("wrong", "failing")}
        plain = {protocol.UNSUPPORTED: "unsupported", protocol.UNDECIDABLE: "undecided", protocol.NOT_RUN: "undecided"}
        named = (point.status.replace("_", " "), plain.get(point.status, "broken"))
        word, verdict = known.get(point.status, named)
        text = f"{before.status}, then {point.status}".replace("_", " ")
    title = f"{point.subject} on {workloads} ({point.device}{hot})"
    return Changes(title, f"{text} in {point.environment}", verdict, word, point, before)


def draw(every: Sequence[Series]) -> Markup:
    """Times by run, a line for each environment, with intervals; a larger point is the first of a new level.

    An inline picture of pygal, without its own style and script: the page's style colours it.
    """
    import pygal

    runs = sorted({(point.created, point.run) for series in every for point in series.points})
    ends = [value for series in every for p in series.points for value in (p.median_us, p.low_us, p.high_us) if value]
    margin = MARGIN * (max(ends) - min(ends)) or MARGIN * max(ends)
    labels = [created[:10] for created, _ in runs]
    chart = pygal.Line(
        width=WIDTH,
        height=HEIGHT,
        explicit_size=False,
        js=[],
        disable_xml_declaration=True,
        no_prefix=True,
        dots_size=2.5,
        legend_at_bottom=True,
        truncate_legend=-1,
        truncate_label=-1,
        show_minor_x_labels=False,
        margin=6,
        range=(max(0.0, min(ends) - margin), max(ends) + margin),
        value_formatter=time_text,
        y_labels_major_count=4,
        show_minor_y_labels=False,
        allow_interruptions=False,
    )
    chart.x_labels = [f"{index} {label}" for index, label in enumerate(labels)]
    chart.x_labels_major = chart.x_labels[:: max(1, -(-len(runs) // LABELS))]
    for series in every:
        by_run = {point.run: point for point in series.points}
        firsts = {series.points[step.at].run for step in series.steps}
        chart.add(series.environment, [_dot(by_run.get(run), run in firsts) for _, run in runs])
    return Markup(_bare(chart.render(is_unicode=True)))


def _dot(point: Point | None, is_first: bool) -> dict[str, object] | None:
    if point is None or point.median_us is None:
        return None
    time = median_interval_text(point.median_us, point.low_us, point.high_us)
    words = f"{time}, {point.launches} launches, {point.torch}, {where(point).removeprefix('since ')}"
    dot: dict[str, object] = {"value": point.median_us, "label": words}
    if point.low_us is not None and point.high_us is not None:
        dot["ci"] = {"low": point.low_us, "high": point.high_us}
    if is_first:
        dot["node"] = {"r": 6}
    return dot


def _bare(svg: str) -> str:
    """Without styles, scripts and what only a script would read; what a dot says is its title."""
    svg = re.sub(r"<!--.*?-->|<defs>.*?</defs>|<script.*?</script>|<title>Pygal</title>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<desc class="label">(.*?)</desc>', r"<title>\1</title>", svg, flags=re.DOTALL)
    svg = re.sub(r'<desc.*?</desc>| style="[^"]*"', "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", '<svg role="img" aria-label="times by run" ', 1).replace(' id=""', "", 1)


def render_history(history: History) -> str:
    return render_html("history.html.j2", history=history, where=where, least=LEAST_RUNS)
