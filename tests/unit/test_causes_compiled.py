"""Causes of what compiles at run time: how sure one can be that the generated code is why a result moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.storage import save_record
from reports.attribute import Cause, explained
from reports.attribute.causes import About, Grade, Kind
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import as_operators, write_run
from tests.unit.test_compiled import output, record

PLAIN, COMPILED = "gelu-fp32", "gelu.compiled-fp32"
WRONG = Case(passed=2, bits="new", units=400.0)
LESS_EXACT = Case(bits="new", units=3.9)


def operators(
    folder: Path,
    *,
    compiled: Case = WRONG,
    plain: Case | None = None,
    generated: str = "other",
    workloads: tuple[str, ...] = (PLAIN, COMPILED),
) -> list[Cause]:
    """Return the causes of a compiled operator that is wrong in the other environment."""
    told = {(NEXT, target, COMPILED): compiled for target in ("kernel", "model")}
    told |= {(NEXT, target, PLAIN): plain for target in ("kernel", "model") if plain is not None}
    run = write_run(
        folder,
        Spec(kernels=("pytorch",), references=("model",), workloads=workloads, trials=10, launches=1, cases=told),
    )
    as_operators(run, COMPILED)
    for environment, text in ((BASE, "a"), (NEXT, "a" if generated == "same" else "b")):
        path = run.experiment_path(environment, "pytorch", "cpu", COMPILED, "compiled")
        made = [output(text)] if generated != "nothing" else []
        save_record(path, record(environment, workload=COMPILED, generated=made))
    return [cause for cause in explained(folder) if COMPILED in cause.workloads and cause.about == About.CORRECTNESS]


GRADES: dict[str, tuple[dict[str, Any], str, str]] = {
    "the plain call stays": ({}, Kind.COMPILED_CODE_MOVED, Grade.LIKELY),
    "no plain call": ({"workloads": (COMPILED,)}, Kind.COMPILED_CODE_MOVED, Grade.POSSIBLE),
    "the plain call moved, too": ({"plain": WRONG}, Kind.OPERATOR_MOVED, Grade.POSSIBLE),
    "only less exact": ({"compiled": LESS_EXACT}, Kind.COMPILED_CODE_MOVED, Grade.LIKELY),
    "only less exact, as the plain call": (
        {"compiled": LESS_EXACT, "plain": LESS_EXACT},
        Kind.OPERATOR_MOVED,
        Grade.POSSIBLE,
    ),
    "the same was generated": ({"generated": "same"}, Kind.OPERATOR_MOVED, Grade.PROVEN),
    "nothing was generated": ({"generated": "nothing"}, Kind.OPERATOR_MOVED, Grade.PROVEN),
}


@pytest.mark.parametrize("name", GRADES)
def test_generated_code_is_a_cause_as_far_as_it_was_tried(tmp_path: Path, name: str) -> None:
    given, cause, grade = GRADES[name]
    (found, *_) = operators(tmp_path, **given)
    assert (found.cause, found.grade) == (cause, grade), (found.statement, found.parts)
    assert found.evidence and found.statement


def test_generated_code_that_was_not_excluded_is_named_beside_the_operator(tmp_path: Path) -> None:
    (found, *_) = operators(tmp_path, plain=WRONG)
    assert Kind.COMPILED_CODE_MOVED in found.causes
    assert "without torch.compile" in " ".join(part.statement for part in found.parts)
