"""Kernels in Python that were followed, or made with wider integers."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.schema.environment_records import EnvironmentRecord
from harness.schema.storage import load_record, save_record
from harness.worker import operators, wire
from reports.attribute.causes import (
    DECISIVE,
    INPUTS_MOVED,
    KERNEL_CODE_MOVED,
    RANGE_OVERFLOW,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
    WRONG_EVERYWHERE,
)
from tests.unit.attributed import FELL, both, causes_of, first, spec
from tests.unit.experiments import clean, conditions, history, profiles, result
from tests.unit.spec import BASE, NEXT, Case
from tests.unit.test_causes_moved import written_in_python

PRODUCT = {"aten::mm": (1.0, 90.0)}
ONE_WAY, ANOTHER = (1, 2, 5), (1, 3, 4, 5)


def followed(**more: Any) -> Any:
    def make(run: Any) -> None:
        written_in_python(run)
        profiles(run, "kernel", PRODUCT, PRODUCT, **more)

    return make


def test_another_way_through_the_file_is_the_kernels_own_choice(tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL), followed(lines=(ONE_WAY, ANOTHER)))
    assert (found.cause, found.grade) == (KERNEL_CODE_MOVED, STRONG)
    assert REFERENCE_MOVED not in found.causes
    told = [seen.text for seen in found.evidence]
    assert "of its file ran in the baseline alone: line 2" in told
    assert "of its file ran here alone: line 3, line 4" in told
    assert [label for label, _ in found.figures[0].rows] == ["2: text of 2", "3: text of 3", "4: text of 4"]


@pytest.mark.parametrize(
    ("lines_", "grade"),
    [((ONE_WAY, ONE_WAY), STRONG), (((), ()), SUGGESTIVE), (((), ANOTHER), SUGGESTIVE)],
    ids=["the same way", "not followed", "followed in one"],
)
def test_what_takes_the_same_way_moved_by_an_operator(lines_: Any, grade: str, tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL), followed(lines=lines_))
    assert (found.cause, found.grade) == (REFERENCE_MOVED, grade)


def test_lines_of_another_python_are_not_compared(tmp_path: Path) -> None:
    def older(run: Any) -> None:
        path = run.environment_path(NEXT)
        record = load_record(path, EnvironmentRecord)
        seen = record.observed.model_copy(update={"python": "3.9.18"})
        save_record(path, record.model_copy(update={"observed": seen}))

    found = first(tmp_path, spec(FELL), followed(lines=(ONE_WAY, ANOTHER)), older)
    assert (found.cause, found.grade) == (REFERENCE_MOVED, SUGGESTIVE)


def test_who_is_right_takes_any_way(tmp_path: Path) -> None:
    made = spec((NEXT, "kernel", Case(bits="new")))
    found = causes_of(tmp_path, made, followed(lines=(ONE_WAY, ANOTHER)))
    assert found and all(KERNEL_CODE_MOVED not in cause.causes for cause in found)


def test_a_variable_that_differs_may_choose_the_way(tmp_path: Path) -> None:
    made = spec(FELL, variables={NEXT: {"FAST": "1"}})
    found = causes_of(tmp_path, made, followed(lines=(ONE_WAY, ANOTHER)))
    assert found and all(KERNEL_CODE_MOVED not in cause.causes for cause in found)


@pytest.mark.parametrize(
    ("as_model", "cause"),
    [
        ((True, False), INPUTS_MOVED),
        ((False, True), KERNEL_CODE_MOVED),  # it is wrong where it draws as the model does
        ((False, False), KERNEL_CODE_MOVED),
        ((True, None), KERNEL_CODE_MOVED),
    ],
)
def test_other_draws_than_the_models_are_other_inputs(as_model: Any, cause: str, tmp_path: Path) -> None:
    making = followed(lines=(ONE_WAY, ANOTHER), as_model=as_model)
    found = first(tmp_path, spec(FELL), lambda run: clean(run, passed=0.2), making)
    assert (found.cause, found.grade) == (cause, STRONG)
    assert len(found.figures) >= 1


def test_who_became_right_drew_otherwise_before(tmp_path: Path) -> None:
    made = spec((BASE, "kernel", Case(passed=2, units=400.0)), (NEXT, "kernel", Case(bits="new")))
    found = first(tmp_path, made, clean, followed(lines=(ONE_WAY, ONE_WAY), as_model=(False, True)))
    assert (found.cause, found.grade) == (INPUTS_MOVED, STRONG)
    assert "in the baseline they are not those" in found.statement


NARROW, WIDE = result("AA", 0.0), {"integers": "int64"}
ANEW = result("AA", 0.0, integers="as_asked")


@pytest.mark.parametrize(
    ("wide", "anew", "tried", "expected"),
    [
        (result("BB", 1.0, **WIDE), ANEW, True, (RANGE_OVERFLOW, DECISIVE)),
        (result("BB", 1.0, **WIDE), ANEW, False, (RANGE_OVERFLOW, STRONG)),
        (result("BB", 1.0, **WIDE), result("BB", 1.0, integers="as_asked"), True, (WRONG_EVERYWHERE, SUGGESTIVE)),
        (result("BB", 1.0, **WIDE), NARROW, True, (WRONG_EVERYWHERE, SUGGESTIVE)),
        (result("BB", 0.5, **WIDE), ANEW, True, (WRONG_EVERYWHERE, SUGGESTIVE)),
        (result("AA", 0.0, **WIDE), ANEW, True, (WRONG_EVERYWHERE, SUGGESTIVE)),
    ],
    ids=[
        "right",
        "right, with memory not tried",
        "right when made anew",
        "without a control",
        "right at times",
        "wrong",
    ],
)
def test_right_with_wider_integers_alone(wide: Any, anew: Any, tried: bool, expected: Any, tmp_path: Path) -> None:
    def make(run: Any) -> None:
        if tried:
            clean(run, passed=0.0)
            history(run, "AA AA", "AA AA", wrong="A")
        conditions(run, "wider", [NARROW, result("CC", 0.0, dtype="float64"), anew, wide])

    found = first(tmp_path, spec(*both("kernel", Case(passed=0, units=412.0))), make)
    assert (found.cause, found.grade) == expected


def test_lines_are_those_of_the_file_and_of_no_other(tmp_path: Path) -> None:
    text = "def call(flag):\n    if flag:\n        return 1\n    return 2\n"
    for name in ("one.py", "other.py"):
        (tmp_path / name).write_text(text)
    spaces: list[dict[str, Any]] = [{}, {}]
    for space, name in zip(spaces, ("one.py", "other.py"), strict=True):
        exec(compile(text, str(tmp_path / name), "exec"), space)
    with operators.running(str(tmp_path / "one.py")) as numbers:
        spaces[0]["call"](True)
        spaces[1]["call"](False)
    spaces[0]["call"](False)
    assert operators.lines_of(str(tmp_path / "one.py"), numbers) == [
        wire.Line(2, "if flag:"),
        wire.Line(3, "return 1"),
    ]


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
