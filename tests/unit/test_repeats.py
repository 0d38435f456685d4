"""A kernel whose sums run in another order each time: right, said to be not bit-repeatable, and blamed for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.main import main
from reports.attribute.causes import Kind
from reports.render.page import render_page
from reports.render.summaries import render_summary_text, summary
from tests.unit.attributed import both, of_kernel, spec
from tests.unit.reporting import report_of
from tests.unit.spec import Case

ATOMIC = Case(repeats_differ=9, repeats_units=0.42)
SAID = (
    "attention_scalar (cpu) is not bit-repeatable: on the same inputs a second run gave other bits in 9 of 10 "
    "trials, at most 0.42 rounding units apart"
)


def test_it_is_right_and_every_output_says_that_it_does_not_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(tmp_path, spec(*both("kernel", ATOMIC)))
    row = next(row for row in report.rows if row.kind == "kernel")
    assert row.correctness.verdict == "pass" and row.correctness.bits.word == "not bit-repeatable"
    assert len(report.unrepeatable) == 1 and report.unrepeatable[0].startswith(SAID)
    assert report.unrepeatable[0].endswith("every output is within tolerance")
    assert SAID in render_summary_text(report).replace("\\", "")
    assert summary(report)["not_bit_repeatable"] == report.unrepeatable
    page = render_page(report)
    assert SAID in page and '<span class="tag">not bit-repeatable</span>' in page
    assert main(["report", str(tmp_path)]) == 0
    assert SAID in capsys.readouterr().out


def test_it_is_blamed_for_nothing_and_never_said_to_give_the_same_bits(tmp_path: Path) -> None:
    (found,) = of_kernel(tmp_path, spec(*both("kernel", ATOMIC)))
    assert found.cause == Kind.NOTHING_MOVED and found.grade != "possible"
    told = " ".join([found.statement, *(seen.text for seen in found.evidence), *(r.how for r in found.ruled_out)])
    assert "not bit-repeatable" in found.statement and "same bits" not in told
    assert "0.42 units apart (the rule allows 4)" in told


def test_who_asked_for_the_same_bits_is_told_so(tmp_path: Path) -> None:
    made = spec(*both("kernel", replace(ATOMIC, deterministic=True, units=1.0)))
    row = next(row for row in report_of(tmp_path / "row", made).rows)
    assert row.correctness.verdict == "failing" and row.correctness.this.status == "wrong"
