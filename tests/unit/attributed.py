"""What tests of causes share: made-up runs of one workload with experiments beside them, and the causes found there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.schema.storage import Run
from reports.attribute import Cause, explained
from tests.unit.experiments import KERNEL
from tests.unit.spec import BASE, NEXT, SEED_ONLY, Case, Spec
from tests.unit.synthetic import write_run

Make = Callable[[Run], None]
RECIPES = ("independent", "shared_qkv", "large_logits")


def spec(*cases: tuple[str, str, Case], **changes: Any) -> Spec:
    """One workload, ten trials: `cases` are (environment, target, what it does)."""
    told = {(environment, target, "seed-fp16"): case for environment, target, case in cases}
    return Spec(**({"trials": 10, "launches": 1, "cases": told, **SEED_ONLY} | changes))


def both(target: str, case: Case) -> tuple[tuple[str, str, Case], ...]:
    return (BASE, target, case), (NEXT, target, case)


def of_both(case: Case, **changes: Any) -> Spec:
    """The kernel alike in both environments."""
    return spec(*both("kernel", case), **changes)


def here(case: Case, **changes: Any) -> Spec:
    """The kernel in the other environment alone."""
    return spec((NEXT, "kernel", case), **changes)


def causes_of(folder: Path, made: Spec, *experiments: Make) -> list[Cause]:
    run = write_run(folder, made)
    for experiment in experiments:
        experiment(run)
    return explained(folder)


def of_kernel(folder: Path, made: Spec, *experiments: Make) -> list[Cause]:
    return [cause for cause in causes_of(folder, made, *experiments) if cause.kernel == KERNEL]


WRONG = Case(passed=2, units=400.0)
TIMED: dict[str, Any] = {"launches": 10, "spread": 0.001}  # enough to say that no time moved
