"""Versions that compute different things: what counts as another float64 result, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness import errors
from harness.run.pairwise import compare_outputs
from harness.schema.bisection_records import CellSeen
from harness.schema.records import RecipeResult, TruthDifference, ValidationRecord
from harness.schema.run_records import WorkloadInfo
from harness.search.bisect.observe import sketch
from harness.search.bisect.steps import find_differing, truths_differ
from harness.worker import protocol
from harness.worker.meaning import AMPLIFIED, RESOLUTION, float64_difference, resolution_of
from harness.worker.protocol import DifferenceKind
from reports import model
from reports.attribute.causes import Kind
from reports.compare.exit_codes import exit_codes
from tests.unit.attributed import spec
from tests.unit.reporting import kernel_row, report_of
from tests.unit.spec import BASE, NEXT, Case, Spec

PROBLEM = WorkloadInfo(id="w", name="w", dtype="float32", devices=["cpu"], problem="toy.py")
GRADIENT = "grad of x"


# -- two float64 results ------------------------------------------------------------------------------------


def test_results_within_rounding_are_the_same_thing_and_beyond_it_are_not() -> None:
    values = np.array([[1.0, -8.0], [0.25, np.nan]])
    assert float64_difference(values, values * (1 + 2.0**-50)) is None
    moved = values.copy()
    moved[1, 0] += 9 * RESOLUTION
    found = float64_difference(values, moved)
    assert found is not None and (found.kind, found.elements, found.place) == (DifferenceKind.VALUE, 1, (1, 0))
    assert (found.left, found.right) == (0.25, moved[1, 0])
    moved[1, 0] = 0.25 + 7 * RESOLUTION  # of the largest value, 8
    assert float64_difference(values, moved) is None


@pytest.mark.parametrize(
    ("here", "elements"), [([1.0, 0.0, np.inf], 1), ([np.nan, np.nan, np.inf], 1), ([1.0, np.nan, -np.inf], 1)]
)
def test_nan_and_infinity_in_another_place_are_another_result(here: list[float], elements: int) -> None:
    found = float64_difference(np.array([1.0, np.nan, np.inf]), np.array(here))
    assert found is not None and (found.kind, found.elements) == (DifferenceKind.NONFINITE, elements)


def test_another_shape_is_another_result_and_nothing_is_none() -> None:
    found = float64_difference(np.zeros(3), np.zeros((3, 1)))
    assert found is not None and found.kind is DifferenceKind.SHAPE
    assert float64_difference(np.zeros((0, 2)), np.zeros((0, 2))) is None
    assert float64_difference(np.full(2, np.nan), np.full(2, np.nan)) is None


def test_a_computation_that_amplifies_rounding_may_differ_by_more() -> None:
    assert resolution_of(2.0**-24, 2.0**-24) == RESOLUTION
    ill = resolution_of(0.25, 2.0**-24)  # float32 keeps two bits of it: float64 has lost as many
    assert ill == AMPLIFIED * 0.25 * 2.0**-29 > RESOLUTION


# -- of two environments ------------------------------------------------------------------------------------


def validation(environment: str, folder: Path, arrays: dict[str, np.ndarray]) -> ValidationRecord:
    np.savez(folder / f"{environment}.npz", **arrays)  # type: ignore[arg-type]
    recipe = RecipeResult(
        recipe="independent", trials=2, input_sha256=["x"], truth_sha256=[], rounding_cost=[2.0**-24], targets=[]
    )
    return ValidationRecord(
        environment=environment,
        kernel="k",
        workload="w",
        device="cpu",
        key="",
        decides="rounding",
        limits={},
        recipes=[recipe],
        arrays=f"{environment}.npz",
        started_utc="",
        duration_s=0,
        status="ok",
    )


def test_the_truths_of_a_problem_are_compared_output_by_output_and_the_first_trial_is_told(tmp_path: Path) -> None:
    one = np.ones(4)
    names = ("independent/0/truth", "independent/1/truth", f"independent/0/{protocol.OF_OUTPUT}{GRADIENT}")
    base = validation("a", tmp_path, dict.fromkeys(names, one))
    this = validation("b", tmp_path, {names[0]: one, names[1]: one * 2, names[2]: np.array([1.0, 1.0, 5.0, 1.0])})
    record = compare_outputs("k", PROBLEM, "cpu", [base, this], tmp_path)
    assert record is not None
    assert [(each.output, each.trial, each.elements, each.of, each.index) for each in record.truths] == [
        (GRADIENT, 0, 1, 4, [2]),
        ("", 1, 4, 4, [0]),
    ]
    assert (record.truths[0].left_value, record.truths[0].right_value) == ("1", "5")
    assert ("a:truth", "b:truth") in {(pair.left, pair.right) for pair in record.pairs}


def test_what_all_environments_share_is_no_difference(tmp_path: Path) -> None:
    one = np.ones(4)
    both = [validation(name, tmp_path, {"independent/0/truth": one * size}) for name, size in (("a", 1), ("b", 2))]
    shared = replace(PROBLEM, problem=None)
    one_more = validation("c", tmp_path, {"independent/0/kernel": one})
    record = compare_outputs("k", shared, "cpu", [*both, one_more], tmp_path)
    assert record is not None and not record.truths


# -- what is said -------------------------------------------------------------------------------------------


def difference(output: str = "", before: str = "1.667", here: str = "0.962") -> TruthDifference:
    return TruthDifference(
        left=BASE,
        right=NEXT,
        recipe="independent",
        trial=0,
        output=output,
        kind=DifferenceKind.VALUE,
        elements=3,
        of=64,
        index=[5],
        left_value=before,
        right_value=here,
    )


def changed(*cases: tuple[str, str, Case], **changes: object) -> Spec:
    return spec(*cases, truths=(difference(),), **changes)


def test_no_version_is_accused_where_both_are_right_by_their_own_float64(tmp_path: Path) -> None:
    report = report_of(tmp_path, changed())
    [answer] = report.answers.kernels
    assert answer.state == "computes something else"
    assert answer.what.startswith("computes something else in 2.5.0 than in 2.1.0: element [5] of the output is 1.667")
    baseline, other = answer.grid["attention_scalar"]
    assert (baseline.outputs, other.outputs) == ("right", "computes something else")
    assert "wrong" not in answer.what and "broke" not in answer.what and "stay below" not in " ".join(answer.do)
    assert "def truth" in answer.do[0]
    row = kernel_row(report)
    assert row.correctness.verdict == model.MEANING_CHANGED and row.correctness.meaning is not None
    assert [cause.cause for _, cause in report.by_row[row.id]] == [Kind.MEANING_CHANGED]


@pytest.mark.parametrize("failing", [BASE, NEXT])
def test_one_that_differs_from_its_own_float64_is_not_the_culprit_of_the_change(failing: str, tmp_path: Path) -> None:
    report = report_of(tmp_path, changed((failing, "kernel", Case(passed=4, bits="other"))))
    row = kernel_row(report)
    judged = row.correctness
    assert judged.verdict == model.MEANING_CHANGED and "4 of 10 trials pass in" in judged.why
    assert protocol.WRONG not in (judged.baseline.status, judged.this.status)


def test_a_kernel_that_is_wrong_by_either_version_is_wrong(tmp_path: Path) -> None:
    both = [(name, "kernel", Case(passed=0, bits=name)) for name in (BASE, NEXT)]
    [answer] = report_of(tmp_path, changed(*both)).answers.kernels
    assert answer.state == "wrong"


@pytest.mark.parametrize(("right", "verdict"), [(BASE, model.REGRESSED), (NEXT, model.FIXED), ("", None)])
def test_of_gradients_finite_differences_say_which_version_is_right(
    right: str, verdict: str | None, tmp_path: Path
) -> None:
    gradients = {name: {GRADIENT: name == right} for name in (BASE, NEXT)}
    made = replace(changed(), truths=(difference(GRADIENT),), gradients=gradients)
    row = kernel_row(report_of(tmp_path, made))
    assert row.correctness.verdict == (verdict or model.MEANING_CHANGED)
    wrong = [side.environment for side in (row.correctness.baseline, row.correctness.this) if side.status == "wrong"]
    assert wrong == [name for name in (BASE, NEXT) if right and name != right]


def test_one_gradient_that_is_a_slope_in_one_version_alone_decides_and_is_told(tmp_path: Path) -> None:
    """Another gradient, that of a constant in floating-point numbers, is a slope in neither."""
    other = "grad of query"
    gradients = {BASE: {other: False, GRADIENT: True}, NEXT: {other: False, GRADIENT: False}}
    made = replace(changed(), truths=(difference(other, "3"), difference(GRADIENT)), gradients=gradients)
    row = kernel_row(report_of(tmp_path, made))
    assert row.correctness.verdict == model.REGRESSED and f"of {GRADIENT} is 1.667 in" in row.correctness.why


def test_gradients_that_contradict_accuse_nobody(tmp_path: Path) -> None:
    other = "grad of query"
    gradients = {BASE: {other: False, GRADIENT: True}, NEXT: {other: True, GRADIENT: False}}
    made = replace(changed(), truths=(difference(other), difference(GRADIENT)), gradients=gradients)
    row = kernel_row(report_of(tmp_path, made))
    assert row.correctness.verdict == model.MEANING_CHANGED


@pytest.mark.parametrize(("right", "verdict"), [(BASE, model.REGRESSED), (NEXT, model.FIXED), ("", None)])
def test_the_formula_of_attention_says_which_version_is_right(right: str, verdict: str | None, tmp_path: Path) -> None:
    formulas = {name: {"": name == right} for name in (BASE, NEXT)}
    report = report_of(tmp_path, replace(changed(), formulas=formulas))
    row = kernel_row(report)
    assert row.correctness.verdict == (verdict or model.MEANING_CHANGED)
    [answer] = report.answers.kernels
    assert bool(right) == any("the formula of attention" in text for text in answer.why)


def test_finite_differences_say_nothing_where_an_output_changed_too(tmp_path: Path) -> None:
    gradients = {BASE: {GRADIENT: True}, NEXT: {GRADIENT: False}}
    made = replace(changed(), truths=(difference(GRADIENT), difference("output")), gradients=gradients)
    row = kernel_row(report_of(tmp_path, made))
    assert row.correctness.verdict == model.MEANING_CHANGED


@pytest.mark.parametrize(("largest", "draws_else"), [(0.05, True), (1000.0, False)])
def test_other_draws_are_told_from_other_rounding(largest: float, draws_else: bool, tmp_path: Path) -> None:
    """The made-up outputs lie 2e-3 apart."""
    made = spec((NEXT, "kernel", Case(bits="other")), draws_numbers=True, largest=largest)
    [answer] = report_of(tmp_path, made).answers.kernels
    said = "draws other numbers from the same seed in 2.5.0 than in 2.1.0"
    assert (answer.state == "draws other numbers") == draws_else == (said in answer.what)
    assert draws_else == any("get_inputs()" in text for text in answer.do)


def test_a_gate_does_not_pass_what_nothing_in_the_run_can_judge(tmp_path: Path) -> None:
    report = report_of(tmp_path, changed())
    assert exit_codes(report.evidence, report.rows, frozenset({"correctness"})) == [errors.UNDECIDED]
    assert exit_codes(report.evidence, report.rows) == []


# -- of versions that a bisection looks at ------------------------------------------------------------------


def seen(truth: np.ndarray) -> CellSeen:
    return CellSeen(cell="k/w/cpu", status="ok", truths={"independent/0/truth": sketch(truth)})


def test_a_bisection_tells_versions_apart_by_what_they_compute() -> None:
    values = np.random.default_rng(5).standard_normal((64, 48))
    other = values.copy()
    other[3, 7] += 1e-3
    apart = [find_differing([seen(values)], [seen(each)]) for each in (other, values * (1 + 2.0**-50))]
    assert apart == [["k/w/cpu"], []]
    hole = values.copy()
    hole[0, 0] = np.nan
    assert truths_differ({"x": sketch(values)}, {"x": sketch(hole)})
    assert truths_differ({"x": sketch(values)}, {"x": sketch(values.T)})
    assert not truths_differ({"x": sketch(values)}, {"y": sketch(other)})
