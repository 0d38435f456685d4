"""Right in both environments, with errors that moved: a verdict of its own, with a cause, and no failure by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import errors
from reports.attribute.causes import BUILD_MOVED, NOTHING_MOVED, UNDECIDED
from reports.compare.exit_codes import exit_codes
from reports.render.page import render_page
from tests.unit.attributed import CODE, FLAGS, both, first, of_kernel, spec
from tests.unit.experiments import swap
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case, Spec

EXACT, COARSE = (BASE, "kernel", Case(units=1.0)), (NEXT, "kernel", Case(units=3.9, bits="new"))


def fast_math() -> Spec:
    return spec(EXACT, COARSE, machine_code=CODE, flags=FLAGS)


def test_one_to_almost_four_units_is_less_exact_and_the_page_says_so(tmp_path: Path) -> None:
    report = report_of(tmp_path, fast_math())
    row = next(row for row in report.rows if row.kind == "kernel")
    assert row.correctness.verdict == "less_exact" and "3.9 times the baseline's" in row.correctness.why
    assert row in report.moved and report.correctness_counts["less_exact"] == 1
    assert "1 kernel output correct as before" in report.headline and "1 less exact" in report.headline
    assert "v-less_exact" in render_page(report)
    assert exit_codes(report.evidence, report.rows, frozenset({"correctness"})) == []
    assert exit_codes(report.evidence, report.rows, frozenset({"exactness"})) == [errors.CORRECTNESS_REGRESSED]


def test_its_cause_is_looked_for_as_that_of_a_failure(tmp_path: Path) -> None:
    found = first(tmp_path / "flags", fast_math())
    assert found.cause == BUILD_MOVED and "became less exact" in found.statement and not found.wrong
    open_question = first(tmp_path / "unknown", spec(EXACT, COARSE))
    assert open_question.cause == UNDECIDED and "became less exact" in open_question.statement


def test_swapped_object_code_decides(tmp_path: Path) -> None:
    found = first(tmp_path, fast_math(), lambda run: swap(run, "AABB", right="AB"))
    assert (found.cause, found.grade) == (BUILD_MOVED, "decisive")


@pytest.mark.parametrize("units", [1.0, 1.2])
def test_about_as_exact_is_nothing(tmp_path: Path, units: float) -> None:
    made = spec(EXACT, (NEXT, "kernel", Case(units=units, bits="new")))
    assert [cause.cause for cause in of_kernel(tmp_path, made)] == [NOTHING_MOVED]


def test_more_exact_is_no_failure_either(tmp_path: Path) -> None:
    made = spec((BASE, "kernel", Case(units=3.9)), (NEXT, "kernel", Case(units=1.0, bits="new")), machine_code=CODE)
    found = first(tmp_path, made)
    assert "became more exact" in found.statement


def test_errors_alike_on_both_sides_move_nothing(tmp_path: Path) -> None:
    assert [cause.cause for cause in of_kernel(tmp_path, spec(*both("kernel", Case(units=3.9))))] == [NOTHING_MOVED]
