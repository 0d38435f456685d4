"""What is known comes first: a change of time before what cannot be judged, a proven fault before trials that pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.load.evidence import load_evidence
from reports.render.answers import Answer
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary, render_summary_text
from reports.text import TIMES
from tests.unit.attributed import Make, here, of_both, spec
from tests.unit.experiments import checkers
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

TIMED = {"launches": 10}
OPEN = Case(status="undecidable", message="independent: zeros would pass")
REFUSED = Case(status="unsupported", message="no code for Long")


def only(folder: Path, made: Spec) -> Answer:
    [answer] = report_of(folder, made).answers.kernels
    return answer


def test_a_slow_down_heads_outputs_that_cannot_be_judged(tmp_path: Path) -> None:
    slow = Case(status="undecidable", message=OPEN.message, slowdown=11.6)
    answer = only(tmp_path, spec((BASE, "kernel", OPEN), (NEXT, "kernel", slow), **TIMED))
    assert answer.state == "slower" and answer.what.startswith("11.6")
    assert f"{TIMES} the time [" in answer.what and "since 2.5.0" in answer.what.partition("; ")[0]
    assert "correctness undecided: cannot be judged in 2.1.0 and in 2.5.0" in answer.what
    quick = Case(status="undecidable", message=OPEN.message, slowdown=0.5)
    faster = only(tmp_path / "faster", spec((BASE, "kernel", OPEN), (NEXT, "kernel", quick), **TIMED))
    assert faster.what.startswith("50% less time [") and "correctness undecided" in faster.what


@pytest.mark.parametrize(
    ("before", "now", "state", "what"),
    [
        (OPEN, REFUSED, "broke", "no longer supported in 2.5.0: cannot be judged in 2.1.0, refused in 2.5.0"),
        (REFUSED, OPEN, "newly supported", "newly supported in 2.5.0: refused in 2.1.0, cannot be judged in 2.5.0"),
        (
            OPEN,
            Case(status="crashed", message="x died by SIGSEGV"),
            "broke",
            "broke in 2.5.0: cannot be judged in 2.1.0, crashes in 2.5.0",
        ),
    ],
)
def test_a_refusal_or_a_crash_of_one_version_heads_what_cannot_be_judged(
    before: Case, now: Case, state: str, what: str, tmp_path: Path
) -> None:
    answer = only(tmp_path, spec((BASE, "kernel", before), (NEXT, "kernel", now)))
    assert (answer.state, answer.what.partition("; ")[0]) == (state, what)


@pytest.mark.parametrize(("slowdown", "says"), [(1.02, "% slower ["), (0.98, "% less time [")])
def test_a_time_about_the_threshold_has_direction_ratio_and_interval(
    slowdown: float, says: str, tmp_path: Path
) -> None:
    answer = only(tmp_path, here(Case(slowdown=slowdown), min_effect=0.02, **TIMED))
    assert answer.state == "time changed slightly"
    assert says in answer.what and "], about the smallest effect that counts (2.0%)" in answer.what.replace(
        " since 2.5.0,", ","
    )


def test_an_undecided_time_has_what_was_seen_of_it(tmp_path: Path) -> None:
    answer = only(tmp_path, here(Case(slowdown=1.05), launches=2))
    assert "whether its time changed is undecided: 1.0" in answer.what and f"{TIMES} [" in answer.what


def latent(folder: Path, made: Spec, *experiments: Make) -> Report:
    run = write_run(folder, made)
    for experiment in experiments:
        experiment(run)
    return Report(load_evidence(folder))


def proven(tool: str, kind: str) -> Make:
    return lambda run: checkers(run, tool, kind, device="cuda")


def test_a_proven_fault_heads_a_kernel_whose_trials_pass(tmp_path: Path) -> None:
    made = of_both(Case(), device="cuda", **TIMED)
    report = latent(tmp_path, made, proven("initcheck", "uninitialised"))
    [answer] = report.answers.kernels
    assert answer.state == "latent bug"
    assert answer.what.startswith(
        "latent bug: every trial passes in 2.1.0 and in 2.5.0, and a read of uninitialised device memory is proven"
    )
    assert [cell.outputs for cell in answer.grid["attention_scalar"]] == ["latent bug", "latent bug"]
    assert any(text.startswith("write every element") for text in answer.do), answer.do
    assert not any("that fails" in text for text in answer.do)
    page, summary = render_page(report), json.loads(render_summary(report))
    assert "latent bug" in page and "latent bug: every trial passes" in render_summary_text(report)
    assert summary["answers"]["kernels"][0]["state"] == "latent bug"
    assert summary["verdict"].startswith("attention_scalar (cuda): latent bug")


def test_a_fault_that_is_only_reported_or_fails_is_no_latent_bug(tmp_path: Path) -> None:
    wrong = latent(tmp_path / "wrong", of_both(Case(passed=2, units=400.0), device="cuda"), proven("racecheck", "race"))
    assert wrong.answers.kernels[0].state == "wrong"
    found = latent(tmp_path / "right", of_both(Case(), device="cuda", **TIMED))
    assert found.answers.kernels[0].what.startswith("right in 2.1.0 and in 2.5.0")
