"""Every verdict from records, and no cell without one."""

import dataclasses
from pathlib import Path

import pytest

from harness.schema.records import Outcome
from reports.compare.kernelbench import fast_p
from reports.compare.rows import compare
from reports.load.evidence import load_evidence
from reports.model import Comparison
from reports.render.report import Report
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

SEED = "seed-fp16"


def rows_of(folder: Path, spec: Spec) -> dict[str, Comparison]:
    write_run(folder, spec)
    evidence = load_evidence(folder)
    return {row.id: row for row in compare(evidence)}


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
    assert judged.verdict == verdict
    assert judged.why


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (1.0, 1.12, "regressed"),
        (1.0, 0.85, "improved"),
        (1.0, 1.0, "pass"),
    ],
)
def test_latency_verdicts(tmp_path: Path, before: float, now: float, verdict: str) -> None:
    cases = {(BASE, "kernel", SEED): Case(slowdown=before), (NEXT, "kernel", SEED): Case(slowdown=now)}
    timed = kernel_row(tmp_path, Spec(cases=cases, min_effect=0.02)).latency
    assert timed.verdict == verdict
    assert timed.ratio == pytest.approx(now, rel=0.02)
    assert timed.low is not None and timed.high is not None and timed.low <= timed.ratio <= timed.high
    assert len(timed.this.medians_us) == 10 and timed.smallest_effect is not None


def test_a_noisy_run_is_undecided_and_says_how_many_launches_would_do(tmp_path: Path) -> None:
    timed = kernel_row(tmp_path, Spec(spread=0.06, min_effect=0.01)).latency
    assert timed.verdict == "undecided"
    assert timed.launches_needed is not None and timed.launches_needed > 10


def test_three_launches_find_a_doubling_and_one_finds_nothing(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", SEED): Case(slowdown=2.0)}
    assert kernel_row(tmp_path / "three", Spec(cases=cases, launches=3)).latency.verdict == "regressed"
    timed = kernel_row(tmp_path / "one", Spec(cases=cases, launches=1)).latency
    assert timed.verdict == "undecided" and "takes at least 2" in timed.why


def test_a_change_of_about_what_counts_is_said_to_be_one(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", SEED): Case(slowdown=1.012)}
    timed = kernel_row(tmp_path, Spec(cases=cases, launches=30, min_effect=0.01)).latency
    assert timed.verdict == "moved_about_the_threshold" and timed.launches_needed is None
    assert timed.why.startswith("significantly slower, q = ") and "about the minimum effect of 1%" in timed.why


@pytest.mark.parametrize(("status", "verdict"), [("crashed", "broken"), ("unsupported", "no_longer_supported")])
def test_latency_without_times(tmp_path: Path, status: str, verdict: str) -> None:
    cases = {(NEXT, "kernel", SEED): Case(status=status, message="said so")}
    timed = kernel_row(tmp_path, Spec(cases=cases)).latency
    assert timed.verdict == verdict and "said so" in timed.why


def test_only_blocks_of_both_environments_are_compared(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec())
    for index in range(6):
        run.launch_path(NEXT, "attention_scalar", "cpu", index).unlink()
    evidence = load_evidence(tmp_path)
    row = compare(evidence)[0]
    assert "4 + 4 launches" in row.latency.why


def test_an_environment_timed_alone_is_not_comparable(tmp_path: Path) -> None:
    timed = kernel_row(tmp_path, Spec(mode="eval")).latency
    assert timed.verdict == "undecided" and "timed alone" in timed.why
    assert timed.this.median_us is not None


def test_references_are_compared_as_kernels_are(tmp_path: Path) -> None:
    cases = {
        (NEXT, "math", SEED): Case(slowdown=1.2, passed=70, bits="new"),
        (NEXT, "flash", SEED): Case(status="unsupported", message="no kernel for this head size"),
    }
    rows = rows_of(tmp_path, Spec(cases=cases, kernels=("one", "two")))
    math, flash = (rows[f"{NEXT}/ref:{name}/{SEED}/cpu"] for name in ("math", "flash"))
    assert (math.correctness.verdict, math.latency.verdict) == ("regressed", "regressed")
    assert math.correctness.bits.word == "differ"
    assert math.latency.this.measured_with == "one"
    assert flash.correctness.verdict == "no_longer_supported"
    assert "head size" in flash.correctness.why


def test_a_broken_environment_breaks_its_cells(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, Spec(stacks={NEXT: Outcome(status="broken", message="torch is 2.4.1")}))
    assert {row.correctness.verdict for row in rows.values()} == {"broken"}
    assert all("torch is 2.4.1" in row.latency.why for row in rows.values())


def test_a_failed_build_breaks_its_kernel_with_the_compilers_message(tmp_path: Path) -> None:
    spec = Spec(builds={NEXT: Outcome(status="build_failed", message="no member named 'frobnicate'")})
    row = kernel_row(tmp_path, spec)
    assert row.correctness.verdict == "broken" and "frobnicate" in row.correctness.why


def test_no_gaps_whatever_is_missing(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec())
    for folder in ("validations", "launches", "builds", "environments", "crossings"):
        for path in (run.folder / folder).rglob("*.json"):
            path.unlink()
    report = Report(load_evidence(tmp_path))
    assert len(report.cells) == 4 and all(cell.status == "not_run" and cell.message for cell in report.cells)
    assert {row.correctness.verdict for row in report.rows} == {"undecided"}
    assert len(report.rows) == 2 * 3


def test_a_record_that_contradicts_itself_is_undecided(tmp_path: Path) -> None:
    from harness.schema.records import ValidationRecord
    from harness.schema.run_records import Cell
    from harness.schema.storage import load_record, save_record

    run = write_run(tmp_path, Spec(cases={(NEXT, "kernel", SEED): Case(passed=19)}))
    path = run.validation_path(Cell(environment=NEXT, kernel="attention_scalar", workload=SEED, device="cpu"))
    record = load_record(path, ValidationRecord)
    save_record(path, record.model_copy(update={"status": "ok"}))
    evidence = load_evidence(tmp_path)
    judged = compare(evidence)[0].correctness
    assert judged.verdict == "undecided" and "19 of 100" in judged.why


def test_an_a_a_control_is_named_one(tmp_path: Path) -> None:
    replica = f"{BASE}-r1"
    rows = rows_of(tmp_path, Spec(environments=(BASE, replica, NEXT)))
    assert rows[f"{replica}/attention_scalar/{SEED}/cpu"].control
    assert not rows[f"{NEXT}/attention_scalar/{SEED}/cpu"].control


def test_fast_p_counts_correct_and_faster(tmp_path: Path) -> None:
    cases = {(NEXT, "flash", "*"): Case(slowdown=3.0), (NEXT, "kernel", "seed-fp32"): Case(passed=1)}
    write_run(tmp_path, Spec(cases=cases))
    evidence = load_evidence(tmp_path)
    found = {(line.environment, line.reference): line for line in fast_p(evidence)}
    line = found[NEXT, "flash"]
    assert (line.problems, line.fast_0, line.fast_1, line.fast_2) == (2, 0.5, 0.5, 0.5)
    assert found[BASE, "flash"].fast_0 == 1.0 and found[BASE, "flash"].fast_2 == 0.0
    assert line.speedups[SEED] == pytest.approx(3.0, rel=0.05)


def test_ids_are_stable_and_unique(tmp_path: Path) -> None:
    spec = Spec(kernels=("one", "two"))
    assert list(rows_of(tmp_path / "a", spec)) == list(rows_of(tmp_path / "b", dataclasses.replace(spec, seed=9)))
