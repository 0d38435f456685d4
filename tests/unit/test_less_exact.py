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
BUILT = {"machine_code": CODE, "flags": FLAGS}
MORE = (NEXT, "kernel", Case(units=1.0, bits="new"))


def fast_math() -> Spec:
    return spec(EXACT, COARSE, **BUILT)


def test_one_to_almost_four_units_is_less_exact_and_the_page_says_so(tmp_path: Path) -> None:
    report = report_of(tmp_path, fast_math())
    row = next(row for row in report.rows if row.kind == "kernel")
    assert row.correctness.verdict == "less_exact" and "mean error 3.9 times as large" in row.correctness.why
    assert row in report.moved and report.correctness_counts["less_exact"] == 1
    assert "right, less exact in 2.5.0 than in 2.1.0" in report.answers.title
    assert "v-less_exact" in render_page(report)
    assert exit_codes(report.evidence, report.rows, frozenset({"correctness"})) == []
    assert exit_codes(report.evidence, report.rows, frozenset({"exactness"})) == [errors.CORRECTNESS_REGRESSED]


@pytest.mark.parametrize(
    ("made", "cause", "words"),
    [
        (spec(EXACT, COARSE, **BUILT), BUILD_MOVED, "became less exact"),
        (spec(EXACT, COARSE), UNDECIDED, "became less exact"),
        (spec((BASE, "kernel", Case(units=3.9)), MORE, **BUILT), BUILD_MOVED, "became more exact"),
        (spec(EXACT, MORE), NOTHING_MOVED, ""),
        (spec(EXACT, (NEXT, "kernel", Case(units=1.2, bits="new"))), NOTHING_MOVED, ""),
        (spec(*both("kernel", Case(units=3.9))), NOTHING_MOVED, ""),
    ],
)
def test_its_cause_is_looked_for_as_that_of_a_failure(tmp_path: Path, made: Spec, cause: str, words: str) -> None:
    [found] = of_kernel(tmp_path, made)
    assert found.cause == cause and words in found.statement and not found.wrong


def test_swapped_object_code_decides(tmp_path: Path) -> None:
    found = first(tmp_path, fast_math(), lambda run: swap(run, "AABB", right="AB"))
    assert (found.cause, found.grade) == (BUILD_MOVED, "decisive")
