"""What leaves the range of its type, what only seems to, and what nothing may call wrong everywhere for sure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.experiment_records import ConditionResult
from harness.schema.storage import Run
from reports.attribute import causes
from reports.attribute.causes import STRONG, SUGGESTIVE, Cause
from tests.unit.attributed import RECIPES, both, first, of_kernel, spec
from tests.unit.experiments import FOLLOWS, clean, conditions, history, poison, result
from tests.unit.spec import Case

ALWAYS = Case(passed=0, units=412.0)
INFINITE = Case(passed=0, units=412.0, nonfinite=10)
PLAIN = result("AA", 0.0)
NAN = result("AA", 0.0, nonfinite=True)


def units(made: ConditionResult, told: float) -> ConditionResult:
    return made.model_copy(update={"max_units": told})


def scaled(recipe: str = "halved_4", passed: float = 0.0, **more: Any) -> ConditionResult:
    return result("BB", passed, recipe=recipe, **more)


def wider(passed: float, **more: Any) -> ConditionResult:
    return result("CC", passed, dtype="float64", **more)


def asked(
    folder: Path,
    case: Case,
    inputs: list[ConditionResult],
    in_float64: ConditionResult | None = None,
    lengths: tuple[int, ...] = (1, 64, 100, 512),
    **changes: Any,
) -> Cause:
    """A kernel that is wrong by the same bits in both environments, of whose memory and calls all was tried."""

    def make(run: Run) -> None:
        clean(run, passed=0.0)
        history(run, "AA AA", "AA AA", wrong="A")
        conditions(run, "inputs", inputs)
        conditions(run, "lengths", [result("A", 0.0, seq_len=length) for length in lengths])
        if in_float64 is not None:
            conditions(run, "wider", [inputs[0], in_float64])

    return first(folder, spec(*both("kernel", case), **changes), make)


SMALLER = [scaled("halved_4", scales=True), scaled("halved_8", scales=True)]


@pytest.mark.parametrize(
    ("inputs", "in_float64"),
    [
        ([PLAIN, *SMALLER], None),
        ([PLAIN, scaled(scales=False)], wider(0.0)),
        ([PLAIN, *SMALLER, result("DD", 0.0, nonfinite=True, recipe="steep_logits")], None),
    ],
    ids=["as wrong on smaller inputs", "wrong in float64", "what larger logits do besides is another question"],
)
def test_wrong_everywhere_where_nothing_else_is_left(
    inputs: list[ConditionResult], in_float64: ConditionResult | None, tmp_path: Path
) -> None:
    found = asked(tmp_path, ALWAYS, inputs, in_float64)
    assert (found.cause, found.grade) == (causes.WRONG_EVERYWHERE, STRONG)
    assert any(each.rival == "the range of its type" for each in found.ruled_out)


def test_a_kernel_of_one_length_may_be_right_at_others(tmp_path: Path) -> None:
    """A problem file has one: a count that fits in its type up to some length is not told from an algorithm."""
    found = asked(tmp_path, ALWAYS, [PLAIN, *SMALLER], lengths=())
    assert (found.cause, found.grade) == (causes.WRONG_EVERYWHERE, SUGGESTIVE)
    assert any("a count or an end" in seen.text for seen in found.evidence)


@pytest.mark.parametrize(("other", "grade"), [("long64-fp16", SUGGESTIVE), ("small-fp32", STRONG)])
def test_wrong_on_one_size_alone_is_perhaps_not_the_algorithm(other: str, grade: str, tmp_path: Path) -> None:
    """An offset of sixteen bits does that. What is right in another type says nothing of sizes."""
    found = asked(tmp_path, ALWAYS, [PLAIN, *SMALLER], workloads=("seed-fp16", other))
    assert (found.cause, found.grade) == (causes.WRONG_EVERYWHERE, grade)
    assert ("another workload does not show it" in found.statement) is (grade == SUGGESTIVE)


@pytest.mark.parametrize(
    ("case", "inputs", "in_float64"),
    [
        (INFINITE, [NAN, scaled(nonfinite=True), scaled("halved_8", nonfinite=True)], None),
        (INFINITE, [NAN, scaled(scales=True)], None),
        (ALWAYS, [PLAIN, scaled(scales=True, nonfinite=True)], None),
        (INFINITE, [NAN, scaled(nonfinite=True)], wider(0.0, nonfinite=True)),  # as zero by zero is
        (ALWAYS, [PLAIN, scaled(scales=False)], None),
        (ALWAYS, [PLAIN, units(scaled(scales=True), 9000.0)], None),
        (ALWAYS, [PLAIN, scaled(scales=False)], wider(1.0)),  # its digits, and not its range
        (ALWAYS, [PLAIN, scaled(scales=False), scaled("halved_8", 0.5, scales=False)], wider(0.0)),
        (ALWAYS, [PLAIN], wider(0.0)),
        (ALWAYS, [PLAIN], None),
    ],
    ids=["nan at any size", "nan at full size", "nan on smaller", "nan in float64", "another question", "worse",
         "digits", "less wrong on smaller", "smaller not tried", "not asked"],
)  # fmt: skip
def test_what_does_not_exclude_a_range(
    case: Case, inputs: list[ConditionResult], in_float64: ConditionResult | None, tmp_path: Path
) -> None:
    found = asked(tmp_path, case, inputs, in_float64)
    assert (found.cause, found.grade) == (causes.WRONG_EVERYWHERE, SUGGESTIVE)
    assert any("not excluded:" in seen.text for seen in found.evidence)
    assert all(each.rival != "the range of its type" for each in found.ruled_out)


def test_nan_that_nobody_asked_about_is_suggestive_at_most(tmp_path: Path) -> None:
    found = first(tmp_path, spec(*both("kernel", INFINITE)))
    assert (found.cause, found.grade) == (causes.WRONG_EVERYWHERE, SUGGESTIVE)


def test_what_a_wider_type_makes_right_left_its_range(tmp_path: Path) -> None:
    found = asked(tmp_path, INFINITE, [NAN, scaled(nonfinite=True)], wider(1.0))
    assert (found.cause, found.grade) == (causes.RANGE_OVERFLOW, STRONG)
    assert causes.WRONG_EVERYWHERE not in found.causes
    assert any("float64 6/6" in seen.text for seen in found.evidence)


def test_where_the_first_call_is_right_no_type_is_too_narrow(tmp_path: Path) -> None:
    def make(run: Run) -> None:
        conditions(run, "wider", [NAN, wider(1.0)])
        conditions(run, "inputs", [result("BB", 0.0)])
        history(run, "AB AB", "AB AB", wrong="B")

    found = first(tmp_path, spec(*both("kernel", INFINITE)), make)
    assert causes.RANGE_OVERFLOW not in found.causes


def test_memory_that_is_read_may_hold_what_a_wider_type_does_not_meet(tmp_path: Path) -> None:
    def make(run: Run) -> None:
        poison(run, {"output": FOLLOWS})
        conditions(run, "wider", [NAN, wider(1.0)])

    found = first(tmp_path, spec(*both("kernel", INFINITE)), make)
    assert found.cause == causes.UNINITIALISED_HOST and causes.RANGE_OVERFLOW not in found.causes


LARGE = Case(recipes={"large_logits": (0, 400.0)})
ON_LARGE = result("BB", 0.0, recipe="large_logits")


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ([result("CC", recipe="offset_logits"), result("DD", 0.0, recipe="steep_logits")], causes.MASKED_BY_INPUTS),
        ([result("CC", 0.0, recipe="offset_logits")], causes.RANGE_OVERFLOW),  # their size alone is enough
        ([result("CC", recipe="offset_logits"), result("DD", 0.0, True, recipe="steep_logits")], causes.RANGE_OVERFLOW),
        ([result("DD", 0.0, recipe="steep_logits")], causes.RANGE_OVERFLOW),  # their size alone was not tried
    ],
    ids=["finite, and right on larger ones", "wrong on larger ones", "infinite somewhere", "not tried"],
)
def test_whether_large_logits_are_too_large(more: list[ConditionResult], cause: str, tmp_path: Path) -> None:
    made = spec(*both("kernel", LARGE), recipes=RECIPES)
    found = of_kernel(tmp_path, made, clean, lambda run: conditions(run, "inputs", [result("AA"), ON_LARGE, *more]))
    assert (found[0].cause, found[0].grade) == (cause, STRONG)
    assert not {causes.MASKED_BY_INPUTS, causes.RANGE_OVERFLOW} - {cause} & set(found[0].causes)


@pytest.mark.parametrize("steep", [0.0, 1.0], ids=["wrong on steep logits", "right on steep logits"])
def test_what_stays_finite_on_large_logits_is_hidden_by_ordinary_ones_and_perhaps_a_range(
    steep: float, tmp_path: Path
) -> None:
    """Clipped, or kept as an integer, which wraps: not excluded, and not shown."""
    made = spec(*both("kernel", LARGE), recipes=RECIPES)
    larger = [result("CC", 0.0, recipe="offset_logits"), result("DD", steep, recipe="steep_logits")]
    found = of_kernel(tmp_path, made, clean, lambda run: conditions(run, "inputs", [result("AA"), ON_LARGE, *larger]))
    beside = next(part for part in found[0].parts if part.cause == causes.RANGE_OVERFLOW)
    assert (found[0].cause, found[0].grade, beside.grade) == (causes.MASKED_BY_INPUTS, STRONG, SUGGESTIVE)
    assert "stay finite however large they are" in found[0].statement
    assert any("not excluded: a limit that the kernel sets" in seen.text for seen in beside.evidence)


@pytest.mark.parametrize(
    ("case", "plain", "cause"), [(INFINITE, NAN, causes.RANGE_OVERFLOW), (ALWAYS, PLAIN, causes.WRONG_EVERYWHERE)]
)
def test_what_flat_logits_make_right_where_it_was_not_finite(
    case: Case, plain: ConditionResult, cause: str, tmp_path: Path
) -> None:
    """A flat softmax hides much that is wrong; where NaN goes with it, its logits had no place in their type."""
    found = asked(tmp_path, case, [plain, result("BB", recipe="flat_logits")])
    assert found.cause == cause
