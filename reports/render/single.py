"""What the reports that have one record share: read the folder, write the files beside the record, say the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup

from harness.progress import printable
from harness.schema.bisection_records import BisectionRecord
from harness.schema.storage import load_record
from harness.schema.sweep_records import SweepRecord
from reports.render.files import write_file
from reports.render.page import environment, inlined

WIDTH = 140  # of a row's picture, in CSS pixels
LEAST_REACH = math.log(1.1)  # of the axis
AnyAnswered = TypeVar("AnyAnswered", BisectionRecord, SweepRecord)


def write_report(
    folder: Path, record: str, model: type[AnyAnswered], files: Mapping[str, Callable[[AnyAnswered], str]]
) -> None:
    """Write `files` into a folder, from its one record, and print the answer and the last file's path."""
    answered = load_record(folder / record, model)
    for name, text in {name: render(answered) for name, render in files.items()}.items():
        write_file(folder / name, text, "make it writable")
    print(printable(answered.answer))
    print(folder / list(files)[-1])


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(**values, **inlined("style", "style.css"))


def reach(ratios: Iterable[float | None]) -> float:
    """Half the width of the axis that all rows of a page share, as the logarithm of a ratio."""
    return max([LEAST_REACH, *(abs(math.log(ratio)) for ratio in ratios if ratio)])


def ratio_picture(ratio: float, low: float | None, high: float | None, widest: float) -> Markup:
    """The interval of a ratio on a logarithmic axis, what lies beyond it at its edge; a mark at 1."""

    def at(value: float) -> float:
        return round(WIDTH / 2 * (1 + 0.96 * max(-1.0, min(1.0, math.log(value) / widest))), 1)

    line = "" if low is None or high is None else f'<path class="ci" d="M{at(low)} 7H{at(high)}"/>'
    return Markup(
        f'<svg width="{WIDTH}" height="14" aria-hidden="true"><path class="axis" d="M{WIDTH / 2} 0V14"/>{line}'
        f'<circle cx="{at(ratio)}" cy="7" r="3" fill="var(--this-dot)"/></svg>'
    )
