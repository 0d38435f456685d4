"""Sequences of calls in fresh processes, and smaller inputs: what a verdict on an input's own output must survive."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.schema.storage import Run
from reports.attribute.causes import (
    DECISIVE,
    INPUTS_MOVED,
    PREDECESSOR_SENSITIVITY,
    RACE,
    RANGE_OVERFLOW,
    STRONG,
    SUGGESTIVE,
    UNINITIALISED_HOST,
    WRONG_EVERYWHERE,
)
from tests.unit.attributed import RECIPES, both, first, spec
from tests.unit.experiments import FOLLOWS, STILL, clean, conditions, history, poison, result
from tests.unit.spec import Case

WRONG = Case(passed=5, units=400.0)
UNSTEADY = Case(passed=5, units=400.0, repeats_differ=5)
LARGE = Case(nonfinite=4, units=1.1, recipes={"large_logits": (0, 9e4)})


def wavering(run: Run) -> None:
    """What state that is kept and a race share: other bits at each call, whatever was filled."""
    poison(run, {"output": ("BA", "BA", "BA", "BA"), "heap": ("BA", "BA", "BA", "BA")}, passed=0.5)
    conditions(run, "repeat", [result("ABACABA", 0.5)])


def test_what_calls_before_decide_is_no_race(tmp_path: Path) -> None:
    found = first(
        tmp_path, spec(*both("kernel", UNSTEADY)), wavering, lambda run: history(run, "AB CD", "AB CD", wrong="BCD")
    )
    assert (found.cause, found.grade) == (PREDECESSOR_SENSITIVITY, STRONG)
    assert RACE not in found.causes
    assert any(each.rival == "a race" for each in found.ruled_out)


def test_calls_that_another_process_does_not_repeat_are_a_race(tmp_path: Path) -> None:
    found = first(
        tmp_path, spec(*both("kernel", UNSTEADY)), wavering, lambda run: history(run, "AB CD", "AB CE", wrong="BCDE")
    )
    assert found.cause == RACE


def test_other_bits_within_rounding_blame_nobody(tmp_path: Path) -> None:
    made = spec(*both("kernel", Case(repeats_differ=3)))
    found = first(tmp_path, made, lambda run: history(run, "AB CD", "AB CD"))
    assert PREDECESSOR_SENSITIVITY not in found.causes


def polluted(run: Run) -> None:
    """Large logits are wrong, after calls on other inputs: the outputs of the experiment on inputs."""
    conditions(run, "inputs", [result("AA"), result("CC", 0.0, nonfinite=True, recipe="large_logits")])


def test_a_call_that_is_right_first_is_no_overflow(tmp_path: Path) -> None:
    made = spec(*both("kernel", LARGE), recipes=RECIPES)
    found = first(
        tmp_path, made, polluted, clean, lambda run: history(run, "AA CC", "AA CC", wrong="C", recipe="large_logits")
    )
    assert (found.cause, found.grade) == (PREDECESSOR_SENSITIVITY, DECISIVE)
    assert RANGE_OVERFLOW not in found.causes


def test_a_call_that_is_right_wherever_it_is_made_excludes_nothing(tmp_path: Path) -> None:
    """The sequences are of what fails in either environment: here its first trial never does."""
    made = spec(*both("kernel", LARGE), recipes=RECIPES)

    def right(run: Run) -> None:
        conditions(run, "inputs", [result("AA"), result("AA", recipe="large_logits")])
        history(run, "AA AA", "AA AA", recipe="large_logits")

    found = first(tmp_path, made, right)
    assert (found.cause, found.grade) == (RANGE_OVERFLOW, STRONG)


def test_what_is_wrong_first_too_overflows(tmp_path: Path) -> None:
    made = spec(*both("kernel", LARGE), recipes=RECIPES)
    found = first(
        tmp_path, made, polluted, clean, lambda run: history(run, "CC CC", "CC CC", wrong="C", recipe="large_logits")
    )
    assert (found.cause, found.grade) == (RANGE_OVERFLOW, DECISIVE)


def test_what_each_process_draws_for_itself(tmp_path: Path) -> None:
    made = spec(*both("kernel", Case(passed=0, units=400.0)))

    def processes(run: Run) -> None:
        conditions(run, "predecessor", [result("AA", 0.0), result("DD", 0.0, before="fresh")])
        history(run, "AA AA", "BB BB", wrong="AB")

    def still(run: Run) -> None:
        poison(run, {"output": STILL, "heap": STILL}, passed=0.0)

    found = first(tmp_path / "filled", made, still, processes)
    assert (found.cause, found.grade) == (INPUTS_MOVED, STRONG)
    assert PREDECESSOR_SENSITIVITY not in found.causes
    found = first(tmp_path / "not-filled", made, processes)
    assert (found.cause, found.grade) == (INPUTS_MOVED, SUGGESTIVE)


def test_memory_that_is_read_may_differ_by_process_too(tmp_path: Path) -> None:
    found = first(
        tmp_path,
        spec(*both("kernel", WRONG)),
        lambda run: poison(run, {"output": FOLLOWS, "heap": STILL}),
        lambda run: history(run, "AA AA", "BB BB", wrong="AB"),
    )
    assert found.cause == UNINITIALISED_HOST and INPUTS_MOVED not in found.causes


@pytest.mark.parametrize(
    "processes",
    [
        ("AA AA", "AA BB"),  # on some inputs they agree
        ("AB AB", "CD CD"),  # within a process nothing is settled
    ],
)
def test_processes_that_draw_nothing(processes: tuple[str, str], tmp_path: Path) -> None:
    found = first(tmp_path, spec(*both("kernel", WRONG)), clean, lambda run: history(run, *processes, wrong="ABCD"))
    assert INPUTS_MOVED not in found.causes


# -- smaller inputs -----------------------------------------------------------------------------------------

ALWAYS = Case(passed=0, units=737.0)


def smaller(passed: float, scales: bool, nonfinite: bool = False) -> object:
    def make(run: Run) -> None:
        clean(run, passed=0.0)
        full = result("AA", 0.0, nonfinite=nonfinite)
        small = [result("BB", passed, scales=scales, recipe=recipe) for recipe in ("halved_4", "halved_8")]
        conditions(run, "inputs", [full, *small])
        history(run, "AA AA", "AA AA", wrong="A")

    return make


@pytest.mark.parametrize(("nonfinite", "grade"), [(True, DECISIVE), (False, STRONG)])
def test_smaller_inputs_that_ask_the_same_tell_a_range(nonfinite: bool, grade: str, tmp_path: Path) -> None:
    """Finite numbers alone may come from an index or a branch that is made from what is computed."""
    found = first(tmp_path, spec(*both("kernel", ALWAYS)), smaller(1.0, True, nonfinite))  # type: ignore[arg-type]
    assert (found.cause, found.grade) == (RANGE_OVERFLOW, grade)
    assert WRONG_EVERYWHERE not in found.causes


def test_where_the_truth_does_not_scale_infinities_must_tell(tmp_path: Path) -> None:
    made = spec(*both("kernel", ALWAYS))
    found = first(tmp_path / "finite", made, smaller(1.0, False))  # type: ignore[arg-type]
    assert found.cause == WRONG_EVERYWHERE, "a flatter softmax hides what is wrong with it"
    found = first(tmp_path / "infinite", made, smaller(1.0, False, nonfinite=True))  # type: ignore[arg-type]
    assert (found.cause, found.grade) == (RANGE_OVERFLOW, STRONG)


def test_what_is_wrong_at_any_size_is_no_matter_of_range(tmp_path: Path) -> None:
    found = first(tmp_path, spec(*both("kernel", ALWAYS)), smaller(0.0, True))  # type: ignore[arg-type]
    assert found.cause == WRONG_EVERYWHERE
