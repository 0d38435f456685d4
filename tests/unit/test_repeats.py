"""A kernel whose sums run in another order each time: right, said to be not bit-repeatable, and blamed for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.__main__ import main
from reports.causes.model import NOTHING_MOVED
from reports.evidence import load_evidence
from reports.page import render_page
from reports.report import build_report
from reports.summaries import render_markdown, summary
from tests.unit.attributed import both, of_kernel, spec
from tests.unit.spec import NEXT, Case
from tests.unit.synthetic import write_run

ATOMIC = Case(repeats_differ=9, repeats_units=0.42)
SAID = "attention_scalar (cpu) is not bit-repeatable: other bits in 9 of 10 trials, at most 0.42 units apart"


def test_it_is_right_and_every_output_says_that_it_does_not_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, spec(*both("kernel", ATOMIC)))
    report = build_report(load_evidence(tmp_path))
    row = next(row for row in report.rows if row.kind == "kernel")
    assert row.correctness.verdict == "pass" and row.correctness.bits.word == "not bit-repeatable"
    assert len(report.unrepeatable) == 1 and report.unrepeatable[0].startswith(SAID)
    assert report.unrepeatable[0].endswith("every output within the rule")
    assert SAID in render_markdown(report).replace("\\", "")
    assert summary(report)["not_bit_repeatable"] == report.unrepeatable
    page = render_page(report)
    assert SAID in page and '<span class="tag">not bit-repeatable</span>' in page
    assert main([str(tmp_path)]) == 0
    assert SAID in capsys.readouterr().out


def test_it_is_blamed_for_nothing_and_never_said_to_give_the_same_bits(tmp_path: Path) -> None:
    (found,) = of_kernel(tmp_path, spec(*both("kernel", ATOMIC)))
    assert found.cause == NOTHING_MOVED and found.grade != "suggestive"
    told = " ".join([found.statement, *(seen.text for seen in found.evidence), *(r.how for r in found.ruled_out)])
    assert "not bit-repeatable" in found.statement and "same bits" not in told


def test_a_reference_that_does_not_repeat_did_not_move(tmp_path: Path) -> None:
    unsteady = Case(repeats_differ=4, repeats_units=0.3, bits="new")
    made = spec((NEXT, "math", unsteady), (NEXT, "flash", Case(bits="new", repeats_differ=2)))
    found = of_kernel(tmp_path, made)
    assert [cause.cause for cause in found] == [NOTHING_MOVED]
    assert "drifted" not in found[0].statement
