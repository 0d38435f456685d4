"""Right in both environments, with errors that moved: a verdict of its own, with a cause, and no failure by itself."""

from __future__ import annotations

from pathlib import Path

from harness import errors
from reports.compare import factors
from reports.compare.exit_codes import exit_codes
from reports.compare.factors import DIFFERS, SAME, Factor
from reports.render.page import render_page
from reports.render.report import Report
from tests.unit.attributed import spec
from tests.unit.reporting import evidence_of, report_of
from tests.unit.spec import BASE, NEXT, Case, Spec


def test_one_to_almost_four_units_is_less_exact_and_the_page_says_so(tmp_path: Path) -> None:
    made = spec((BASE, "kernel", Case(units=1.0)), (NEXT, "kernel", Case(units=3.9, bits="new")))
    report = report_of(tmp_path, made)
    row = next(row for row in report.rows if row.kind == "kernel")
    assert row.correctness.verdict == "less_exact" and "mean error 3.9 times as large" in row.correctness.why
    assert row in report.moved and report.counts["correctness"]["less_exact"] == 1
    assert "right, less exact in 2.5.0 than in 2.1.0" in report.answers.title
    assert "v-less_exact" in render_page(report)
    assert exit_codes(report.evidence, report.rows, frozenset({"correctness"})) == []
    assert exit_codes(report.evidence, report.rows, frozenset({"exactness"})) == [errors.CORRECTNESS_REGRESSED]


def test_where_a_reference_is_judged_by_another_arithmetic_its_units_are_not_compared(tmp_path: Path) -> None:
    """As PyTorch's default is where it became the efficient backend."""
    case = {(BASE, "math", "*"): Case(units=3.9, bits="a"), (NEXT, "math", "*"): Case(units=1.0, bits="b")}
    evidence = evidence_of(tmp_path, Spec(cases=case))

    def of_math() -> tuple[Factor, str]:
        row = next(row for row in Report(evidence).rows if row.target == "math")
        return factors.yardstick(evidence, row), row.correctness.why

    assert of_math()[0].state == SAME
    for record in evidence.validations.values():
        for target in (target for recipe in record.recipes for target in recipe.targets):
            if (record.environment, target.target) == (NEXT, "math"):
                target.precision.append("tf32x3_matmul")
    factor, why = of_math()
    assert factor.state == DIFFERS and "three TF32 products" in factor.seen.text and "largest" not in why
