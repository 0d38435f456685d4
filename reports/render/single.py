"""What the reports that have one record share: read the folder, write the files beside the record, say the answer."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup

from harness.cli.options import Parser
from harness.cli.progress import printable
from harness.errors import HarnessError, InputError
from harness.schema.bisection_records import BisectionRecord
from harness.schema.storage import load_record
from harness.schema.sweep_records import SweepRecord
from reports.render.files import write_file
from reports.render.page import environment, inlined

WIDTH = 140  # of a row's picture, in CSS pixels
LEAST_REACH = math.log(1.1)  # of the axis
AnyAnswered = TypeVar("AnyAnswered", BisectionRecord, SweepRecord)


def load_one(path: Path, model: type[AnyAnswered]) -> AnyAnswered:
    """RecordError where the record cannot be trusted, InputError where there is none."""
    if path.is_file():
        return load_record(path, model)
    folder = path.parent
    if (folder / "question.json").is_file():
        raise InputError(f"{folder}: not finished", "start the same command again: it goes on from what is recorded")
    raise InputError(f"{folder}: holds no {path.name}", f"name a folder of reports/{path.stem}s/")


def write_report(
    arguments: Sequence[str],
    parser: Parser,
    record: str,
    model: type[AnyAnswered],
    files: Mapping[str, Callable[[AnyAnswered], str]],
) -> int:
    """Write `files` into the folder that the arguments name, from its one record, and print the answer and the last
    file's path. Returns an exit code (`harness.errors`)."""
    try:
        folder: Path = parser.parse_args(arguments).folder
        answered = load_one(folder / record, model)
        for name, text in {name: render(answered) for name, render in files.items()}.items():
            write_file(folder / name, text, "make it writable")
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    print(printable(answered.answer))
    print(folder / list(files)[-1])
    return 0


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
