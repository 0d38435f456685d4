"""Kernels in Python that were followed, or bring machine code of their own."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.schema.environment_records import EnvironmentRecord
from harness.schema.storage import Run, load_record, save_record
from harness.worker import operators, wire
from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from tests.unit.attributed import (
    FELL,
    UNSTEADY,
    Known,
    Make,
    called,
    causes_of,
    check,
    first,
    here,
    of_both,
    spec,
    written_in_python,
)
from tests.unit.experiments import clean, profiles
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.test_causes_history import wavering

PRODUCT = {"aten::mm": (1.0, 90.0)}
ONE_WAY, ANOTHER = (1, 2, 5), (1, 3, 4, 5)


def followed(**more: Any) -> Make:
    def make(run: Run) -> None:
        written_in_python(run)
        profiles(run, "kernel", PRODUCT, PRODUCT, **more)

    return make


def brings(base: str, this: str) -> Make:
    """A Python file with machine code of its own, by environment."""

    def make(run: Run) -> None:
        written_in_python(run)
        for path in sorted((run.folder / "validations").rglob("*.json")):
            for validation in run.validations():
                code = {BASE: base, NEXT: this}[validation.environment]
                if code and validation.environment in str(path) and validation.workload in str(path):
                    save_record(path, replace(validation, native={"own.so": code}))

    return make


def older(run: Run) -> None:
    """Another Python in the other environment."""
    path = run.environment_path(NEXT)
    record = load_record(path, EnvironmentRecord)
    assert record.observed is not None
    seen = replace(record.observed, python="3.9.18")
    save_record(path, replace(record, observed=seen))


def test_another_way_through_the_file_is_the_kernels_own_choice(tmp_path: Path) -> None:
    says = ["ran only in PyTorch 2.1.0: line 2", "ran only in PyTorch 2.5.0: line 3, line 4"]
    never = [causes.REFERENCE_MOVED]
    made = [followed(lines=(ONE_WAY, ANOTHER))]
    found = check(Known(spec(FELL), made, causes.KERNEL_CODE_MOVED, STRONG, never=never, says=says), tmp_path)
    assert [label for label, _ in found.figures[0].rows] == ["2: text of 2", "3: text of 3", "4: text of 4"]


@pytest.mark.parametrize(
    ("ways", "grade", "beside"),
    [
        ((ONE_WAY, ONE_WAY), STRONG, []),
        (((), ()), SUGGESTIVE, []),
        (((), ANOTHER), SUGGESTIVE, []),
        ((ONE_WAY, ANOTHER), SUGGESTIVE, [older]),  # lines of another Python are not compared
    ],
    ids=["the same way", "not followed", "followed in one", "by another Python"],
)
def test_what_takes_the_same_way_moved_by_an_operator(
    ways: Any, grade: str, beside: list[Make], tmp_path: Path
) -> None:
    check(Known(spec(FELL), [followed(lines=ways), *beside], causes.REFERENCE_MOVED, grade), tmp_path)


@pytest.mark.parametrize(
    "made", [here(Case(bits="new")), spec(FELL, variables={NEXT: {"FAST": "1"}})], ids=["right", "a variable differs"]
)
def test_another_way_that_is_not_blamed(made: Spec, tmp_path: Path) -> None:
    found = causes_of(tmp_path, made, followed(lines=(ONE_WAY, ANOTHER)))
    assert found and all(causes.KERNEL_CODE_MOVED not in cause.causes for cause in found)


@pytest.mark.parametrize(
    ("as_model", "cause"),
    [
        ((True, False), causes.INPUTS_MOVED),
        ((False, True), causes.KERNEL_CODE_MOVED),  # it is wrong where it draws as the model does
        ((False, False), causes.KERNEL_CODE_MOVED),
        ((True, None), causes.KERNEL_CODE_MOVED),
    ],
)
def test_other_draws_than_the_models_are_other_inputs(as_model: Any, cause: str, tmp_path: Path) -> None:
    making = followed(lines=(ONE_WAY, ANOTHER), as_model=as_model)
    found = check(Known(spec(FELL), [lambda run: clean(run, passed=0.2), making], cause, STRONG), tmp_path)
    assert len(found.figures) >= 1


def test_who_became_right_drew_otherwise_before(tmp_path: Path) -> None:
    made = spec((BASE, "kernel", Case(passed=2, units=400.0)), (NEXT, "kernel", Case(bits="new")))
    draws = [clean, followed(lines=(ONE_WAY, ONE_WAY), as_model=(False, True))]
    check(Known(made, draws, causes.INPUTS_MOVED, STRONG, says=["in PyTorch 2.1.0 they are not the ones"]), tmp_path)


# -- machine code of its own --------------------------------------------------------------------------------


def test_other_code_of_its_own_is_told(tmp_path: Path) -> None:
    says = ["compiles or loads by itself differs (own.so)"]
    found = check(Known(spec(FELL), [brings("one", "other")], causes.KERNEL_CODE_MOVED, says=says), tmp_path)
    assert found.grade != DECISIVE
    assert not any("compiler" in ruled.rival for ruled in found.ruled_out), "nobody recorded which one it started"


def test_the_same_code_of_its_own_leaves_what_it_calls(tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL), brings("one", "one"))
    assert found.cause in (causes.REFERENCE_MOVED, causes.DEFAULT_BACKEND_MOVED) and found.grade == SUGGESTIVE
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
    chosen = followed(lines=((1, 2), (1, 2)), texts={1: text})
    told = {"says" if grade == SUGGESTIVE else "silent": [text]}
    made = here(Case(passed=0, bits="new", units=400.0))
    check(Known(made, [chosen], causes.REFERENCE_MOVED, grade, **told), tmp_path)


@pytest.mark.parametrize(("code", "grade"), [("", SUGGESTIVE), ("one", STRONG)])
def test_outputs_that_differ_from_call_to_call_may_be_drawn(code: str, grade: str, tmp_path: Path) -> None:
    """Python that only calls operators has no threads of its own to race: numbers that it draws are as likely."""
    calls = called("AB CD", "AB CE", wrong="BCDE")
    found = check(Known(of_both(UNSTEADY), [brings(code, code), wavering, calls], causes.RACE, grade), tmp_path)
    assert ("random numbers" in found.statement) is (not code)


# -- how it is followed -------------------------------------------------------------------------------------


def test_lines_are_those_of_the_file_and_of_no_other(tmp_path: Path) -> None:
    text = "def call(flag):\n    if flag:\n        return 1\n    return 2\n"
    spaces: list[dict[str, Any]] = [{}, {}]
    for space, name in zip(spaces, ("one.py", "other.py"), strict=True):
        (tmp_path / name).write_text(text)
        exec(compile(text, str(tmp_path / name), "exec"), space)
    with operators.running(str(tmp_path / "one.py")) as numbers:
        spaces[0]["call"](True)
        spaces[1]["call"](False)
    spaces[0]["call"](False)
    expected = [wire.Line(2, "if flag:"), wire.Line(3, "return 1")]
    assert operators.lines_of(str(tmp_path / "one.py"), numbers) == expected


def test_too_many_lines_and_what_dynamo_compiled_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "none.py")
    assert operators.lines_of(path, set(range(operators.MOST_LINES)))
    assert not operators.lines_of(path, set(range(operators.MOST_LINES + 1)))
    utils = SimpleNamespace(counters={"frames": {}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)  # type: ignore[arg-type]
    assert operators.lines_of(path, {1})
    utils.counters["frames"]["total"] = 1
    assert not operators.lines_of(path, {1})


def test_a_thread_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    text = "def call(begun, on):\n    begun.set()\n    on.wait()\n    return 4\n"
    space: dict[str, Any] = {}
    exec(compile(text, str(tmp_path / "one.py"), "exec"), space)
    begun, on = threading.Event(), threading.Event()
    thread = threading.Thread(target=space["call"], args=(begun, on))
    with operators.running(str(tmp_path / "one.py")) as numbers:
        thread.start()
        begun.wait(10)
    seen = set(numbers)
    on.set()
    thread.join()
    assert 2 in seen and 4 not in numbers
