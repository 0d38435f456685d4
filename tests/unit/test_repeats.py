"""A kernel whose sums run in another order each time: right, said to be not bit-repeatable, and blamed for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.schema.storage import Run
from reports.attribute.causes import Kind
from reports.render.page import render_page
from reports.render.summaries import render_summary_text, summary
from tests.unit.attributed import WRONG, Make, both, causes_of, of_kernel, spec
from tests.unit.experiments import checkers, clean, conditions, result
from tests.unit.reporting import report_of
from tests.unit.spec import NEXT, Case

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


def test_a_reference_that_does_not_repeat_did_not_move(tmp_path: Path) -> None:
    unsteady = Case(repeats_differ=4, repeats_units=0.3, bits="new")
    made = spec((NEXT, "math", unsteady), (NEXT, "flash", Case(bits="new", repeats_differ=2)))
    found = of_kernel(tmp_path, made)
    assert [cause.cause for cause in found] == [Kind.NOTHING_MOVED]
    assert "drifted" not in found[0].statement


def other_bits_by(experiment: str, passed: float = 1.0) -> Make:
    """What a kernel that wavers rarely may look like: other bits under each condition, and by luck twice the same."""

    def make(run: Run) -> None:
        letters = ("AA", "BB", "CC", "DD")
        if experiment == "poison":
            names = ("zero", "nan", "max", "random")
            results = [result(each, passed, site="heap", pattern=n) for each, n in zip(letters, names, strict=True)]
        elif experiment == "predecessor":
            before = ("", "math", "unrelated", "fresh")
            results = [result(each, passed, before=name) for each, name in zip(letters, before, strict=True)]
        else:
            results = [result("ABBBBBBB", passed), result("CDDDDDDD", passed, load="beside")]
        conditions(run, experiment, results)

    return make


@pytest.mark.parametrize("experiment", ["poison", "predecessor", "repeat"])
def test_other_bits_under_a_condition_blame_nobody_and_wrong_results_do(tmp_path: Path, experiment: str) -> None:
    made = spec(*both("kernel", ATOMIC))
    assert [c.cause for c in of_kernel(tmp_path / "right", made, other_bits_by(experiment))] == [Kind.NOTHING_MOVED]
    told = of_kernel(tmp_path / "wrong", made, other_bits_by(experiment, passed=0.5))
    assert [c.cause for c in told] != [Kind.NOTHING_MOVED] or experiment == "repeat"


def test_runs_that_lie_near_each_other_are_no_race_whatever_else_is_wrong(tmp_path: Path) -> None:
    near, far = (replace(WRONG, repeats_differ=7, repeats_units=units) for units in (0.5, 300.0))
    assert all(Kind.RACE not in c.causes for c in of_kernel(tmp_path / "near", spec(*both("kernel", near)), clean))
    assert any(Kind.RACE in c.causes for c in of_kernel(tmp_path / "far", spec(*both("kernel", far)), clean))


@pytest.mark.parametrize(("works", "blamed"), [(True, True), (None, False)])
def test_a_checker_that_was_seen_to_work_finds_a_race_in_what_is_right(
    tmp_path: Path, works: bool | None, blamed: bool
) -> None:
    found = of_kernel(tmp_path, spec(*both("kernel", ATOMIC)), lambda run: checkers(run, "thread", "race", works=works))
    assert (found[0].cause == Kind.RACE) is blamed


def test_who_asked_for_the_same_bits_is_told_so_and_nothing_else(tmp_path: Path) -> None:
    made = spec(*both("kernel", replace(ATOMIC, deterministic=True, units=1.0)))
    row = next(row for row in report_of(tmp_path / "row", made).rows)
    assert row.correctness.verdict == "failing" and row.correctness.this.status == "wrong"
    (found,) = of_kernel(tmp_path / "causes", made, clean)
    assert found.cause == Kind.NOT_REPEATABLE and "is right in every run" in found.statement
    assert not {Kind.RACE, Kind.TOLERANCE_TOO_TIGHT, Kind.PREDECESSOR_SENSITIVITY} & set(found.causes)


def test_a_healthy_one_is_told_how_near_its_runs_lie(tmp_path: Path) -> None:
    told = [c for c in causes_of(tmp_path, spec(*both("kernel", ATOMIC))) if c.kernel]
    assert any("0.42 units apart (the rule allows 4)" in seen.text for seen in told[0].evidence)
