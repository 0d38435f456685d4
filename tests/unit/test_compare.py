"""Every verdict from records, and no cell without one."""

import dataclasses
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema.records import Outcome, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import from_json_value, load_record, save_record
from reports.compare.rows import compare
from reports.load.evidence import load_evidence
from reports.model import Comparison
from reports.render.report import Report
from tests.unit.reporting import evidence_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

SEED = "seed-fp16"


def rows_of(folder: Path, spec: Spec) -> dict[str, Comparison]:
    return {row.id: row for row in compare(evidence_of(folder, spec))}


def kernel_row(folder: Path, spec: Spec) -> Comparison:
    return rows_of(folder, spec)[f"{NEXT}/attention_scalar/{SEED}/cpu"]


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (Case(), Case(), "pass"),
        (Case(), Case(passed=19), "regressed"),
        (Case(passed=19), Case(), "fixed"),
        (Case(passed=40), Case(passed=40), "failing"),
        (Case(passed=0), Case(passed=0), "failing"),
        (Case(passed=90), Case(passed=20), "regressed"),
        (Case(passed=20), Case(passed=90), "failing"),
        (Case(passed=50), Case(passed=52), "undecided"),
        (Case(), Case(status="unsupported"), "no_longer_supported"),
        (Case(status="unsupported"), Case(), "newly_supported"),
        (Case(status="unsupported"), Case(passed=3), "failing"),
        (Case(status="unsupported"), Case(status="unsupported"), "unsupported"),
        (Case(), Case(status="crashed"), "broken"),
        (Case(), Case(status="timed_out"), "broken"),
        (Case(status="crashed"), Case(status="crashed"), "broken"),
        (Case(status="crashed"), Case(), "undecided"),
        (Case(), Case(status="not_run"), "undecided"),
        (Case(), Case(missing=True), "undecided"),
        (Case(missing=True), Case(), "undecided"),
    ],
)
def test_correctness_verdicts(tmp_path: Path, before: Case, now: Case, verdict: str) -> None:
    cases = {(BASE, "kernel", SEED): before, (NEXT, "kernel", SEED): now}
    judged = kernel_row(tmp_path, Spec(cases=cases)).correctness
    assert judged.verdict == verdict and judged.why


@pytest.mark.parametrize(
    ("now", "changes", "verdict", "why"),
    [
        (Case(slowdown=1.12), {"min_effect": 0.02}, "regressed", "slower: "),
        (Case(slowdown=0.85), {"min_effect": 0.02}, "improved", "faster: "),
        (Case(), {"min_effect": 0.02}, "pass", "within \N{PLUS-MINUS SIGN}2%"),
        (Case(), {"spread": 0.06}, "undecided", "neither within"),
        (Case(slowdown=2.0), {"launches": 3}, "regressed", "3 + 3 launches"),
        (Case(slowdown=2.0), {"launches": 1}, "undecided", "at least 2"),
        (Case(slowdown=1.012), {"launches": 30}, "moved_about_the_threshold", "by about the minimum effect of 1%"),
        (Case(status="crashed", message="said so"), {}, "broken", "said so"),
        (Case(status="unsupported", message="said so"), {}, "no_longer_supported", "said so"),
        (Case(), {"mode": "eval"}, "undecided", "timed alone"),
    ],
)
def test_latency_verdicts(tmp_path: Path, now: Case, changes: dict[str, Any], verdict: str, why: str) -> None:
    timed = kernel_row(tmp_path, Spec(cases={(NEXT, "kernel", SEED): now}, **changes)).latency
    assert timed.verdict == verdict and why in timed.why
    assert (timed.this.median_us is None) == (now.status != "ok")
    if timed.low is not None and timed.high is not None and timed.ratio is not None:
        assert timed.ratio == pytest.approx(now.slowdown, rel=0.05) and timed.low <= timed.ratio <= timed.high
        assert timed.smallest_effect is not None and len(timed.this.medians_us) == changes.get("launches", 10)
        assert (timed.launches_needed or 0) > 10 if verdict == "undecided" else timed.launches_needed is None


def test_only_blocks_of_both_environments_are_compared(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec())
    for index in range(6):
        run.launch_path(NEXT, "attention_scalar", "cpu", index).unlink()
    assert "4 + 4 launches" in compare(load_evidence(tmp_path))[0].latency.why


def test_references_are_compared_as_kernels_are(tmp_path: Path) -> None:
    cases = {
        (NEXT, "math", SEED): Case(slowdown=1.2, passed=70, bits="new"),
        (NEXT, "flash", SEED): Case(status="unsupported", message="no kernel for this head size"),
    }
    rows = rows_of(tmp_path, Spec(cases=cases, kernels=("one", "two")))
    math, flash = (rows[f"{NEXT}/ref:{name}/{SEED}/cpu"] for name in ("math", "flash"))
    assert (math.correctness.verdict, math.latency.verdict) == ("regressed", "regressed")
    assert math.correctness.bits.word == "differ" and math.latency.this.measured_with == "one"
    assert flash.correctness.verdict == "no_longer_supported" and "head size" in flash.correctness.why


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"stacks": {NEXT: Outcome(status="broken", message="it failed so")}}, f"ref:math/{SEED}"),
        ({"stacks": {NEXT: Outcome(status="broken", message="it failed so")}}, f"attention_scalar/{SEED}"),
        ({"builds": {NEXT: Outcome(status="build_failed", message="it failed so")}}, f"attention_scalar/{SEED}"),
    ],
)
def test_what_fails_before_its_cells_breaks_them_with_its_message(
    tmp_path: Path, changes: dict[str, Any], row: str
) -> None:
    found = rows_of(tmp_path, Spec(**changes))[f"{NEXT}/{row}/cpu"]
    assert found.correctness.verdict == found.latency.verdict == "broken"
    assert "it failed so" in found.correctness.why and "it failed so" in found.latency.why


def test_no_gaps_whatever_is_missing(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec())
    for folder in ("validations", "launches", "builds", "environments", "crossings"):
        for path in (run.folder / folder).rglob("*.json"):
            path.unlink()
    report = Report(load_evidence(tmp_path))
    assert len(report.cells) == 4 and all(cell.status == "not_run" and cell.message for cell in report.cells)
    assert [row.correctness.verdict for row in report.rows] == ["undecided"] * 2 * 3


def test_a_record_that_contradicts_itself_is_undecided(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec(cases={(NEXT, "kernel", SEED): Case(passed=19)}))
    path = run.validation_path(Cell(environment=NEXT, kernel="attention_scalar", workload=SEED, device="cpu"))
    save_record(path, replace(load_record(path, ValidationRecord), status="ok"))
    judged = compare(load_evidence(tmp_path))[0].correctness
    assert judged.verdict == "undecided" and "19 of 100" in judged.why


@pytest.mark.parametrize(
    ("passed", "units", "rule", "failing"),
    [
        (0, [], "rounding", "trial 3, element [0, 2, 100, 7]: got 0.51, want 0.5"),
        (4, [1.0, 8.0, 1.0, 2.0, 1.0], "rounding", "trial 1"),
        (4, [1.0, None, 1.0, 5.0, 1.0], "rounding", "trial 3, element"),
        (4, [], "strict", "trial 3, element"),
        (4, [], "kernelbench", ""),  # which of its trials fails is not recorded
        (5, [1.0] * 5, "rounding", ""),
    ],
)
def test_what_reproduces_a_fault_is_of_a_trial_that_fails(
    passed: int, units: list[float | None], rule: str, failing: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path, Spec(trials=5, decides=rule))
    path = run.validation_path(Cell(environment=NEXT, kernel="attention_scalar", workload=SEED, device="cpu"))
    record = asdict(load_record(path, ValidationRecord))
    for target in record["recipes"][0]["targets"]:
        for each in target["against"]:
            each |= {"passed": each["passed"] | {rule: passed}, "units_per_trial": units}
    save_record(path, from_json_value(ValidationRecord, record))
    row = next(r for r in compare(load_evidence(tmp_path)) if r.id == f"{NEXT}/attention_scalar/{SEED}/cpu")
    shown = row.correctness.this.recipes[0].failing
    assert shown.startswith(failing) and bool(shown) == bool(failing)


def test_an_element_that_is_not_finite_is_said_so(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec(cases={(NEXT, "kernel", SEED): Case(passed=0)}))
    path = run.validation_path(Cell(environment=NEXT, kernel="attention_scalar", workload=SEED, device="cpu"))
    record = asdict(load_record(path, ValidationRecord))
    for target in record["recipes"][0]["targets"]:
        for each in target["against"]:
            each["worst"] = {"trial": 3, "index": [0, 2, 100, 7], "got": None, "want": 0.0}
    save_record(path, from_json_value(ValidationRecord, record))
    row = next(r for r in compare(load_evidence(tmp_path)) if r.id == f"{NEXT}/attention_scalar/{SEED}/cpu")
    assert row.correctness.this.recipes[0].worst.endswith("[0, 2, 100, 7]: got NaN or infinity, want 0")


def test_an_a_a_control_is_named_one(tmp_path: Path) -> None:
    replica = f"{BASE}-r1"
    rows = rows_of(tmp_path, Spec(environments=(BASE, replica, NEXT)))
    assert rows[f"{replica}/attention_scalar/{SEED}/cpu"].control
    assert not rows[f"{NEXT}/attention_scalar/{SEED}/cpu"].control


def test_ids_are_stable_and_unique(tmp_path: Path) -> None:
    spec = Spec(kernels=("one", "two"))
    assert list(rows_of(tmp_path / "a", spec)) == list(rows_of(tmp_path / "b", dataclasses.replace(spec, seed=9)))
