"""The page and the summary of a bisection, from its one record. Nothing is run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from harness.schema.bisection_records import BisectionRecord, CellSeen, VersionRecord
from harness.search.bisect.answer import seen_text
from reports.render.formats import markdown, markdown_row, share_bar
from reports.render.single import WIDTH, ratio_picture, reach, render, write_report

RECORD = "bisection.json"
NOT_ASKED = "not asked"
BADGES = {"good": "pass", "bad": "failing", "neither": "undecided", "undecided": "undecided"}
SYMBOLS = {"good": "\N{CHECK MARK}", "bad": "\N{MULTIPLICATION X}", "neither": "\N{ALMOST EQUAL TO}", "undecided": "?"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One release as a person reads it."""

    version: str
    found: str
    verdict: str
    why: str
    seen: list[tuple[CellSeen, str]]
    looks: int
    run: str
    first: bool  # the first version of a step

    @property
    def badge(self) -> Markup:
        return Markup('<span class="badge v-{}"><span aria-hidden="true">{}</span> {}</span>').format(
            BADGES.get(self.verdict, "unsupported"), SYMBOLS.get(self.verdict, "\N{EN DASH}"), self.verdict
        )


def rows(record: BisectionRecord) -> list[Row]:
    """Every release, those that were skipped or not asked too."""
    asked: dict[str, VersionRecord] = {version.version: version for version in record.versions}
    firsts = {step.after for step in record.steps}
    found = []
    for release in record.question.releases:
        seen = asked.get(release.version)
        verdict = seen.verdict if seen else "skipped" if release.skipped else NOT_ASKED
        found.append(
            Row(
                version=release.version,
                found=seen.torch if seen else "",
                verdict=verdict,
                why=(seen.message if seen and not seen.cells else "") or release.skipped,
                seen=[(cell, seen_text(cell)) for cell in seen.cells] if seen else [],
                looks=seen.looks if seen else 0,
                run=seen.run if seen else "",
                first=release.version in firsts,
            )
        )
    return found


def picture(cell: CellSeen, widest: float) -> Markup:
    """A share as a bar, a ratio as an interval on a logarithmic scale that all rows share; a mark at 1."""
    if cell.rates:
        return share_bar(min(rate.passed / rate.trials for rate in cell.rates.values()), WIDTH)
    return ratio_picture(cell.ratio, cell.low, cell.high, widest) if cell.ratio is not None else Markup("")


def _reach(record: BisectionRecord) -> float:
    return reach(end for version in record.versions for cell in version.cells for end in (cell.low, cell.high))


def render_page(record: BisectionRecord) -> str:
    widest = _reach(record)
    return render(
        "bisection.html.j2",
        record=record,
        question=record.question,
        rows=rows(record),
        picture=lambda cell: picture(cell, widest),
        command=shlex.join(record.question.command),
    )


def render_markdown(record: BisectionRecord) -> str:
    """A text that can be pasted into an issue."""
    question = record.question
    lines = [
        f"**{markdown(record.answer)}**",
        "",
        "| version | found | seen | verdict |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows(record):
        seen = "; ".join(f"{cell.cell}: {text}" for cell, text in row.seen) or row.why
        lines.append(markdown_row((row.version, row.found, seen, row.verdict)))
    lines += [
        *(
            [
                "",
                *(
                    f"- fallback, {markdown(f'{i.subject}: {i.got}, not {i.wanted}: {i.reason}')}"
                    for i in question.fallbacks
                ),
            ]
            if question.fallbacks
            else []
        ),
        "",
        f"{record.environments} environments of {len(question.releases)} releases, wheels of {question.index}, "
        f"{record.duration_s:.0f} s, finished {record.finished_utc}.",
        "",
        "Made by, and next:",
        "",
        f"    {shlex.join(question.command)}",
        f"    {record.next_command}",
    ]
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """The page and the summary of a bisection, in its folder of reports/bisections/."""
    write_report(folder, RECORD, BisectionRecord, {"summary.md": render_markdown, "index.html": render_page})
