"""Made-up runs in which times moved, and what they are said to have moved by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.attribute import Cause, explained
from reports.attribute.causes import About
from tests.unit.experiments import KERNEL, profiles
from tests.unit.spec import NEXT, SEED_ONLY, Case, Spec
from tests.unit.synthetic import write_run

TARGETS = ("kernel", "flash", "math")


def spec(*cases: tuple[str, Case], **changes: Any) -> Spec:
    told = {(NEXT, target, "*"): case for target, case in cases}
    return Spec(**({"trials": 2, "cases": told, "spread": 0.004, **SEED_ONLY} | changes))


def slower(*targets: str, by: float = 1.4, **more: Any) -> tuple[tuple[str, Case], ...]:
    return tuple((target, Case(slowdown=by, **more)) for target in targets)


def timed(folder: Path, made: Spec, subject: str = KERNEL, **profiled: Any) -> list[Cause]:
    run = write_run(folder, made)
    if profiled:
        profiles(run, **profiled)
    return [cause for cause in explained(folder) if cause.about == About.LATENCY and cause.subject == subject]


def only(folder: Path, made: Spec, subject: str = KERNEL, **profiled: Any) -> Cause:
    found = timed(folder, made, subject, **profiled)
    assert len(found) == 1, found
    return found[0]


SOFTMAX = {"aten::bmm": (2.0, 400.0), "aten::_softmax": (1.0, 300.0), "aten::mul": (2.0, 100.0)}
