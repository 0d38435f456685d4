"""A kernel that works on a stream other than its own: right in every trial, and wrong all the same."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports import model
from reports.attribute import causes, explained
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from reports.compare.gate import WRONG, judge
from reports.compare.rows import compare
from reports.load.evidence import load_evidence
from reports.render.explanations import explanations
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary_text
from tests.unit.attributed import Known, causes_of, check, first, spec, tried
from tests.unit.experiments import checkers, conditions, poison, result
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

AS_BEFORE = (
    "a replay of its calls leaves 12 of 12 outputs unwritten: what a call does is not in the graph, as where a kernel "
    "runs on the legacy default stream"
)
ESCAPED = Case(hot_message="a replay of its calls leaves 12 of 12 outputs unwritten: and more", escaped=True)
SKIPPED = replace(ESCAPED, escaped=False)


def made(*where: str, case: Case = ESCAPED, **changes: Any) -> Spec:
    return spec(*((name, "kernel", case) for name in where), device="cuda", launches=6, spread=0.002, **changes)


@pytest.mark.parametrize(
    ("case", "grade"), [(ESCAPED, DECISIVE), (Case(hot_message=AS_BEFORE), STRONG)], ids=["seen", "by its message"]
)
def test_it_is_told_first_and_how_to_mend_it(case: Case, grade: str, tmp_path: Path) -> None:
    [answer] = report_of(tmp_path, made(BASE, NEXT, case=case)).answers.kernels
    assert answer.what.startswith("wrong in 2.1.0 and in 2.5.0") and "works on another stream" in answer.why[0]
    assert "at::cuda::getCurrentCUDAStream()" in answer.do[0]
    leads = [card.lead for card in explanations(explained(tmp_path))]
    assert (leads[0].cause, leads[0].grade, leads[0].kernel) == (causes.WRONG_STREAM, grade, "attention_scalar")
    assert all(lead.cause != causes.NOTHING_MOVED for lead in leads if lead.kernel)


@pytest.mark.parametrize(
    ("where", "verdict"),
    [((BASE, NEXT), model.FAILING), ((NEXT,), model.REGRESSED), ((BASE,), model.FIXED), ((), model.PASS)],
)
def test_every_trial_passes_and_its_verdict_is_no_pass(where: tuple[str, ...], verdict: str, tmp_path: Path) -> None:
    write_run(tmp_path, made(*where))
    evidence = load_evidence(tmp_path)
    row = next(row for row in compare(evidence) if row.kind == "kernel")
    assert row.correctness.verdict == verdict and row.correctness.this.status == "ok"
    assert ("on another stream" in row.correctness.why) is bool(where)
    cell = next(cell for cell in evidence.run.cells if cell.environment == NEXT)
    assert (judge(evidence, cell, "flash", model.COLD).verdict == WRONG) is (NEXT in where)


@pytest.mark.parametrize("case", [SKIPPED, Case(hot_message="capturing its calls raised RuntimeError: x"), Case()])
def test_what_is_not_captured_for_another_reason_is_no_matter_of_streams(case: Case, tmp_path: Path) -> None:
    found = causes_of(tmp_path, made(BASE, NEXT, case=case))
    assert all(causes.WRONG_STREAM not in cause.causes for cause in found)


@pytest.mark.parametrize(
    ("plain", "beside", "told"),
    [(1.0, 0.0, True), (1.0, 1.0, False), (0.0, 0.0, False), (1.0, 0.67, False)],
    ids=["wrong there", "right there", "wrong on both", "now and then"],
)
def test_inputs_that_it_does_not_wait_for_show_it(plain: float, beside: float, told: bool, tmp_path: Path) -> None:
    streams = tried("inputs", result("AA", plain), result("BB", beside, stream="side"), device="cuda")
    if told:
        says, never = ["before that stream has written them"], [causes.MASKED_BY_INPUTS]
        check(Known(made(), [streams], causes.WRONG_STREAM, DECISIVE, says=says, never=never), tmp_path)
    else:
        found = first(tmp_path, made(), streams)
        assert causes.WRONG_STREAM not in found.causes and (beside < 1 or found.cause == causes.NOTHING_MOVED)


def test_a_race_with_that_stream_is_the_other_part(tmp_path: Path) -> None:
    unsteady = replace(ESCAPED, passed=3, units=400.0, repeats_differ=6)
    filled = itertools.product(("output", "shared"), ("zero", "nan"))
    loose = tried("poison", *(result("AB", 0.0, site=s, pattern=p) for s, p in filled), device="cuda")
    check(Known(made(BASE, NEXT, case=unsteady), [loose], causes.WRONG_STREAM, also=[causes.RACE]), tmp_path)


def test_other_bits_may_follow_from_the_stream_and_a_silent_racecheck_is_told(tmp_path: Path) -> None:
    loose = replace(ESCAPED, passed=2, units=400.0, repeats_differ=7)
    run = write_run(tmp_path, made(BASE, NEXT, case=loose))
    checkers(run, "racecheck", device="cuda")
    poison(run, {"shared": ("AB", "CD", "EF", "GH"), "output": ("AB", "CD", "EF", "GH")}, device="cuda", passed=0.0)
    for name in (BASE, NEXT):
        conditions(run, "repeat", [result("ABC", 0.0)], name, "cuda")
    report = Report(load_evidence(tmp_path))
    lead = next(each.lead for each in report.explanations if each.lead.kernel)
    assert (lead.cause, [(part.cause, part.grade) for part in lead.parts]) == (
        causes.WRONG_STREAM,
        [(causes.RACE, SUGGESTIVE)],
    )
    [answer] = report.answers.kernels
    assert answer.why[1].endswith("It may follow from the first.") and "barrier" not in " ".join(answer.do)
    told = [seen.text for seen in (*lead.evidence, *lead.added)]
    assert len(told) == len(set(told)) and any(text.startswith("against a race: racecheck") for text in told)
    assert {name for name in (BASE, NEXT) for text in told if name in text and "repeated calls" in text} == {BASE, NEXT}
    page, summary = render_page(report), render_summary_text(report)
    assert all("It may follow from the first." in text and "uninitialised memory" in text for text in (page, summary))
    assert [each.rival for each in lead.excluded] == ["uninitialised memory"]
