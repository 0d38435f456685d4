"""What tests of causes share: made-up runs of one workload with experiments beside them, and the causes found there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.schema.experiment_records import ConditionResult
from harness.schema.storage import Run, save_record
from reports.attribute import Cause, explained
from tests.unit.experiments import KERNEL, checkers, conditions, history, poison, swap
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


def first(folder: Path, made: Spec, *experiments: Make) -> Cause:
    found = of_kernel(folder, made, *experiments)
    assert found, "the kernel has no cause"
    return found[0]


class Known(NamedTuple):
    """A made-up run, and what its kernel's first card must say."""

    made: Spec
    experiments: Sequence[Make]
    cause: str
    grade: str = ""  # empty: any
    also: Collection[str] = ()  # causes that it names beside
    never: Collection[str] = ()  # and must not
    says: Collection[str] = ()  # in its statement, its evidence, or what it rules out
    silent: Collection[str] = ()  # and does not


def words(cause: Cause) -> str:
    return "\n".join([cause.statement, *(seen.text for seen in cause.evidence), *(r.how for r in cause.ruled_out)])


def check(known: Known, folder: Path) -> Cause:
    """The kernel's first card, as it must be; and every card of the run can be checked."""
    found = causes_of(folder, known.made, *known.experiments)
    lead = next(cause for cause in found if cause.kernel == KERNEL)
    assert (lead.cause, lead.grade) == (known.cause, known.grade or lead.grade), lead.statement
    assert set(known.also) <= set(lead.causes) and not set(known.never) & set(lead.causes), lead.causes
    assert all(text in words(lead) for text in known.says), words(lead)
    assert not any(text in words(lead) for text in known.silent), words(lead)
    for each in found:
        assert each.statement and each.evidence and each.next_command.startswith("nox -s ") and each.workloads
        cited = [seen.record for seen in each.evidence] + [figure.record for figure in each.figures]
        assert all((folder / record).exists() for record in cited if record)
        for figure in each.figures:
            assert all(len(entries) == len(figure.columns) for _, entries in figure.rows)
    return lead


FELL = (NEXT, "kernel", Case(passed=2, bits="new", units=400.0))
WRONG = Case(passed=2, units=400.0)
UNSTEADY = Case(passed=2, units=400.0, repeats_differ=7)
CODE = {NEXT: "new"}
FLAGS = {NEXT: ("-ffast-math",)}
BF16_STRICT = {"decides": "strict"}
TIMED: dict[str, Any] = {"launches": 10, "spread": 0.001}  # enough to say that no time moved

# -- experiments, to be made in a run -----------------------------------------------------------------------


def by(make: Callable[..., None], *arguments: Any, **more: Any) -> Make:
    return lambda run: make(run, *arguments, **more)


def on_gpu(make: Callable[..., None], *arguments: Any, **more: Any) -> Make:
    return by(make, *arguments, device="cuda", **more)


def tried(experiment: str, *results: ConditionResult, **more: Any) -> Make:
    return by(conditions, experiment, results, **more)


def called(*processes: str, **more: Any) -> Make:
    return by(history, *processes, **more)


def swapped(letters: str, right: str = "A") -> Make:
    return by(swap, letters, right=right)


def checked(tool: str, kind: str = "", **more: Any) -> Make:
    return by(checkers, tool, kind, **more)


def filled(passed: float = 1.0, **sites: Sequence[str]) -> Make:
    """Outputs under each pattern, by where it was put."""
    return by(poison, sites, passed=passed)


def written_in_python(run: Run) -> None:
    record = run.load()
    kernels = [replace(kernel, sources=["solution.py"]) for kernel in record.kernels]
    save_record(run.run_path(), replace(record, kernels=kernels))
