"""A kernel that works on a stream other than the one it was given: right in every trial, and wrong all the same."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema.storage import Run
from reports import model
from reports.attribute import explained
from reports.attribute.causes import DECISIVE, MASKED_BY_INPUTS, NOTHING_MOVED, RACE, STRONG, WRONG_STREAM
from reports.compare.gate import WRONG, judge
from reports.compare.rows import compare
from reports.load.evidence import load_evidence
from reports.render.explanations import explanations
from reports.render.report import Report
from tests.unit.attributed import first, spec
from tests.unit.experiments import conditions, result
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
    write_run(tmp_path, made(BASE, NEXT, case=case))
    told = explanations(explained(tmp_path))
    assert (told[0].lead.cause, told[0].lead.grade, told[0].lead.kernel) == (WRONG_STREAM, grade, "attention_scalar")
    assert "at::cuda::getCurrentCUDAStream()" in told[0].lead.statement
    assert all(card.lead.cause != NOTHING_MOVED for card in told if card.lead.kernel)
    headline = Report(load_evidence(tmp_path)).headline
    assert "attention_scalar on another stream than the one given" in headline and "correct as before" not in headline


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
    here = next(cell for cell in evidence.run.cells if cell.environment == NEXT)
    assert (judge(evidence, here, "flash", model.COLD).verdict == WRONG) is (NEXT in where)


@pytest.mark.parametrize("case", [SKIPPED, Case(hot_message="capturing its calls raised RuntimeError: x"), Case()])
def test_what_is_not_captured_for_another_reason_is_no_matter_of_streams(case: Case, tmp_path: Path) -> None:
    write_run(tmp_path, made(BASE, NEXT, case=case))
    assert all(WRONG_STREAM not in cause.causes for cause in explained(tmp_path))


def tried(beside: float, plain: float = 1.0) -> Any:
    def make(run: Run) -> None:
        found = [result("AA", plain), result("BB", beside, stream="side")]
        conditions(run, "inputs", found, device="cuda")

    return make


def test_inputs_that_it_does_not_wait_for_show_it(tmp_path: Path) -> None:
    found = first(tmp_path / "side", made(), tried(0.0))
    assert (found.cause, found.grade) == (WRONG_STREAM, DECISIVE) and MASKED_BY_INPUTS not in found.causes
    assert any("before that stream has put them there" in seen.text for seen in found.evidence)
    assert first(tmp_path / "right", made(), tried(1.0)).cause == NOTHING_MOVED
    assert WRONG_STREAM not in first(tmp_path / "both", made(), tried(0.0, plain=0.0)).causes
    assert WRONG_STREAM not in first(tmp_path / "now and then", made(), tried(0.67)).causes


def test_a_race_with_that_stream_is_the_other_part(tmp_path: Path) -> None:
    unsteady = replace(ESCAPED, passed=3, units=400.0, repeats_differ=6)

    def loose(run: Run) -> None:
        filled = itertools.product(("output", "shared"), ("zero", "nan"))
        conditions(run, "poison", [result("AB", 0.0, site=s, pattern=p) for s, p in filled], device="cuda")

    found = first(tmp_path, made(BASE, NEXT, case=unsteady), loose)
    assert found.cause == WRONG_STREAM and RACE in found.causes
