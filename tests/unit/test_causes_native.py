"""A Python kernel that compiles or loads machine code by itself is no kernel of PyTorch's operators alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.schema.storage import Run, save_record
from reports.attribute.causes import (
    DECISIVE,
    DEFAULT_BACKEND_MOVED,
    KERNEL_CODE_MOVED,
    RACE,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
)
from tests.unit.attributed import FELL, UNSTEADY, Make, both, first, spec
from tests.unit.experiments import history, profiles
from tests.unit.spec import BASE, NEXT, Case
from tests.unit.test_causes_history import wavering


def in_python(base: str = "", this: str = "") -> Make:
    """The kernel is a Python file; `base` and `this` stand for machine code that it brings there."""

    def make(run: Run) -> None:
        record = run.load()
        kernels = [kernel.model_copy(update={"sources": ["solution.py"]}) for kernel in record.kernels]
        save_record(run.run_path(), record.model_copy(update={"kernels": kernels}))
        for path in sorted((run.folder / "validations").rglob("*.json")):
            for validation in run.validations():
                code = {BASE: base, NEXT: this}[validation.environment]
                if code and validation.environment in str(path) and validation.workload in str(path):
                    save_record(path, validation.model_copy(update={"native": {"own.so": code}}))

    return make


def test_other_code_of_its_own_is_told(tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL), in_python("one", "other"))
    assert found.cause == KERNEL_CODE_MOVED and found.grade != DECISIVE
    assert any("compiles or loads by itself differs (own.so)" in seen.text for seen in found.evidence)
    assert not any("compiler" in ruled.rival for ruled in found.ruled_out), "nobody recorded which one it started"


def test_the_same_code_of_its_own_leaves_what_it_calls(tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL), in_python("one", "one"))
    assert found.cause in (REFERENCE_MOVED, DEFAULT_BACKEND_MOVED) and found.grade == SUGGESTIVE
    (code,) = [ruled for ruled in found.ruled_out if ruled.rival == "the kernel's code"]
    assert "compiles or loads by itself is identical (own.so)" in code.how


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("WIDE = torch.int32 if torch.__version__ < '2.4' else torch.int16", SUGGESTIVE),
        ("softmax = getattr(torch, '_safe_softmax', torch.softmax)", SUGGESTIVE),
        ("return torch.matmul(x, self.conversion)", STRONG),
    ],
)
def test_a_choice_within_a_line_that_runs_everywhere_is_a_rival(text: str, grade: str, tmp_path: Path) -> None:
    def chosen(run: Run) -> None:
        operators = {"aten::mm": (1.0, 90.0)}
        profiles(run, "kernel", operators, operators, lines=((1, 2), (1, 2)), texts={1: text})

    found = first(tmp_path, spec((NEXT, "kernel", Case(passed=0, bits="new", units=400.0))), in_python(), chosen)
    assert (found.cause, found.grade) == (REFERENCE_MOVED, grade)
    assert any(text in seen.text for seen in found.evidence) is (grade == SUGGESTIVE)


@pytest.mark.parametrize(("code", "grade"), [("", SUGGESTIVE), ("one", STRONG)])
def test_outputs_that_differ_from_call_to_call_may_be_drawn(code: str, grade: str, tmp_path: Path) -> None:
    """Python that only calls operators has no threads of its own to race: numbers that it draws are as likely."""
    found = first(
        tmp_path,
        spec(*both("kernel", UNSTEADY)),
        in_python(code, code),
        wavering,
        lambda run: history(run, "AB CD", "AB CE", wrong="BCDE"),
    )
    assert (found.cause, found.grade) == (RACE, grade)
    assert ("random numbers" in found.statement) is (not code)
