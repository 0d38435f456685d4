"""Causes that the records support, and `undecided` where they do not."""

from pathlib import Path

from harness.records import Outcome
from reports.evidence import load_evidence
from reports.model import Comparison, Finding
from reports.report import Report, build_report
from tests.unit.synthetic import BASE, NEXT, Case, Spec, write_run

SEED = "seed-fp16"


def report_of(folder: Path, spec: Spec) -> Report:
    write_run(folder, spec)
    return build_report(load_evidence(folder))


def row_of(report: Report, target: str = "attention_scalar") -> Comparison:
    return next(row for row in report.rows if row.id == f"{NEXT}/{target}/{SEED}/cpu")


def only(row: Comparison, about: str = "correctness") -> Finding:
    found = [finding for finding in row.findings if finding.about == about]
    assert len(found) == 1, found
    return found[0]


def test_the_story_agreement_fell_because_the_reference_moved(tmp_path: Path) -> None:
    spec = Spec(cases={(NEXT, "kernel", SEED): Case(agrees=19), (NEXT, "math", SEED): Case(bits="new", units=3.0)})
    row = row_of(report_of(tmp_path, spec))
    assert row.correctness.verdict == "pass"
    by_reference = {finding.cause: finding for finding in row.findings}
    moved = by_reference["reference_moved"]
    assert moved.certainty == "shown" and "math" in moved.statement and "the kernel" in moved.rules_out
    # flash's bits did not move, nor did the kernel's, and yet their agreement fell: that is a contradiction.
    assert by_reference["undecided"].certainty == "undecided"


def test_different_machine_code_is_only_suspected(tmp_path: Path) -> None:
    spec = Spec(cases={(NEXT, "kernel", SEED): Case(passed=19, bits="new")}, machine_code={NEXT: "new"})
    finding = next(f for f in row_of(report_of(tmp_path, spec)).findings if f.about == "correctness")
    assert (finding.cause, finding.certainty) == ("build_moved", "suspected")
    assert finding.next_command and any("machine code differs" in seen.text for seen in finding.evidence)


def test_identical_machine_code_rules_the_build_out(tmp_path: Path) -> None:
    spec = Spec(cases={(NEXT, "kernel", SEED): Case(passed=19, bits="new")})
    finding = only(row_of(report_of(tmp_path, spec)))
    assert finding.cause == "runtime_moved" and "the kernel's machine code" in finding.rules_out


def test_different_inputs_come_before_everything(tmp_path: Path) -> None:
    spec = Spec(cases={(NEXT, "kernel", SEED): Case(passed=19, bits="new")}, inputs={NEXT: "other"})
    report = report_of(tmp_path, spec)
    finding = only(row_of(report))
    assert finding.cause == "inputs_differ" and not finding.rules_out
    assert any("input bytes differ" in item.statement for item in report.confounders)


def test_bits_that_change_from_call_to_call(tmp_path: Path) -> None:
    spec = Spec(cases={(NEXT, "kernel", SEED): Case(passed=80, bits="new", repeats_differ=12)})
    row = row_of(report_of(tmp_path, spec))
    assert only(row).cause == "not_deterministic"
    assert "chance" in row.correctness.why


def test_identical_outputs_with_other_verdicts_are_a_contradiction(tmp_path: Path) -> None:
    spec = Spec(cases={(NEXT, "kernel", SEED): Case(passed=19)})
    finding = only(row_of(report_of(tmp_path, spec)))
    assert finding.cause == "undecided" and "contradict" in finding.statement


def test_wrong_in_both_was_always_wrong(tmp_path: Path) -> None:
    spec = Spec(cases={(BASE, "kernel", SEED): Case(passed=19), (NEXT, "kernel", SEED): Case(passed=19)})
    finding = only(row_of(report_of(tmp_path, spec)))
    assert finding.cause == "always_wrong" and "upgrade" in finding.rules_out[0]


def test_a_failed_build_is_its_own_cause(tmp_path: Path) -> None:
    spec = Spec(builds={NEXT: Outcome(status="build_failed", message="error: expected ';'")})
    finding = only(row_of(report_of(tmp_path, spec)))
    assert finding.cause == "build_failed" and "expected ';'" in finding.statement


def test_a_slower_reference_is_not_the_kernels_fault(tmp_path: Path) -> None:
    spec = Spec(cases={(NEXT, "math", SEED): Case(slowdown=1.2)}, min_effect=0.02)
    finding = only(row_of(report_of(tmp_path, spec), "ref:math"), "latency")
    assert finding.cause == "reference_latency" and finding.certainty == "shown"
    assert any("kernel" in text for text in finding.rules_out)


def test_a_renamed_operator_is_the_same_operator(tmp_path: Path) -> None:
    name = "aten::_scaled_dot_product_flash_attention"
    cases = {
        (BASE, "flash", SEED): Case(operators=(name,)),
        (NEXT, "flash", SEED): Case(operators=(f"{name}_for_cpu",), slowdown=1.2),
    }
    finding = only(row_of(report_of(tmp_path, Spec(cases=cases)), "ref:flash"), "latency")
    assert finding.cause == "reference_latency"
    assert any("under another name" in seen.text for seen in finding.evidence)


def test_another_operator_is_suspected(tmp_path: Path) -> None:
    cases = {
        (BASE, "default", SEED): Case(operators=("aten::a",)),
        (NEXT, "default", SEED): Case(operators=("aten::b",), slowdown=1.2),
    }
    report = report_of(tmp_path, Spec(cases=cases, references=("flash", "default")))
    assert only(row_of(report, "ref:default"), "latency").cause == "reference_operator"


def test_everything_slower_is_the_environment(tmp_path: Path) -> None:
    cases = {(NEXT, target, "*"): Case(slowdown=1.3) for target in ("kernel", "flash", "math")}
    finding = only(row_of(report_of(tmp_path, Spec(cases=cases))), "latency")
    assert finding.cause == "environment_wide"


def test_missing_crossings_and_builds_claim_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec(cases={(NEXT, "kernel", SEED): Case(passed=19, bits="new")}))
    for folder in ("builds", "crossings"):
        for path in (run.folder / folder).rglob("*.json"):
            path.unlink()
    finding = only(row_of(build_report(load_evidence(tmp_path))))
    assert (finding.cause, finding.certainty) == ("kernel_output_moved", "suspected")


def test_every_finding_has_evidence_and_a_command(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "*"): Case(passed=19, bits="n", slowdown=1.2), (NEXT, "math", "*"): Case(bits="m")}
    found = [finding for row in report_of(tmp_path, Spec(cases=cases)).rows for finding in row.findings]
    assert found
    assert all(finding.evidence and finding.statement for finding in found)
    assert all(finding.next_command.startswith("nox -s matrix -- ") for finding in found)


def test_a_changed_cuda_build_is_a_confounder(tmp_path: Path) -> None:
    report = report_of(tmp_path, Spec(torch_cuda={NEXT: "12.4"}))
    assert any("CUDA 12.1 in the baseline and 12.4" in item.statement for item in report.confounders)
