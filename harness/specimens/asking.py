"""What the attribution says of a finished run: the one place where the two halves of the project meet.

The harness knows nothing of reports elsewhere. Specimens test both together, so that import stands here, and is made
when it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.errors import InfrastructureError

UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One cause that was given, in its rank's order, and how sure the attribution is of it."""

    cause: str
    grade: str


class Given(Protocol):
    """The part of `reports.attribute`' Cause that is looked at."""

    cause: str
    grade: str
    kernel: str
    device: str


def answers(causes: Sequence[Given], kernel: str, device: str) -> list[Answer]:
    """The causes given for a kernel, ranked; other parts of the same story stand behind the one that leads it."""
    found: dict[str, Answer] = {}
    for given in causes:
        if given.kernel == kernel and given.device == device:
            for part in (given, *getattr(given, "parts", ())):
                found.setdefault(part.cause, Answer(cause=part.cause, grade=part.grade))
    return list(found.values())


def ask(run_folder: Path) -> list[Any]:
    """Every cause that the reports give for a run, ranked."""
    try:
        causes = importlib.import_module("reports.attribute")
    except ImportError as error:
        raise InfrastructureError(
            f"the attribution cannot be asked: {error}", "see what specimens show without it: --no-causes"
        ) from None
    return list(causes.explained(run_folder))
