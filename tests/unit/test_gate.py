"""The gate: what passes, what fails, what is neither, and the code that says so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness import errors
from harness.cli.main import main
from harness.schema.records import LaunchRecord, Outcome
from harness.schema.storage import Run, load_record, save_record
from harness.stats.effects import compare_launches
from reports.compare.gate import GateVerdict, apply_rule
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

FAST = {("kernel", "seed-fp16"): 400.0, ("kernel", "seed-fp32"): 400.0}  # references take 800
HALF = {("kernel", "seed-fp16"): 780.0, ("kernel", "seed-fp32"): 400.0}
FP16: dict[str, object] = {"workloads": ("seed-fp16",), "times_us": FAST}


def judge(folder: Path, spec: Spec, *options: str) -> int:
    write_run(folder, spec)
    usual = [] if "--reference" in options else ["--reference", "flash"]
    return main(["gate", str(folder), *usual, *options])


@pytest.mark.parametrize(
    ("kernel_us", "reference_us", "at_most", "verdict"),
    [
        ([90.0] * 6, [100.0] * 6, 0.95, GateVerdict.PASS),
        ([94.9] * 6, [100.0] * 6, 0.95, GateVerdict.PASS),
        ([95.1] * 6, [100.0] * 6, 0.95, GateVerdict.SLOW),
        ([90.0] * 1, [100.0] * 1, 0.95, GateVerdict.UNDECIDED),  # how launches spread is not known
        ([110.0] * 6, [100.0] * 6, 1.0, GateVerdict.SLOW),
        ([100.0] * 6, [100.0] * 6, 1.0, GateVerdict.UNDECIDED),  # as fast: neither faster nor slower
        (
            [90.0, 94, 99, 93, 98, 92],
            [100.0] * 6,
            0.95,
            GateVerdict.UNDECIDED,
        ),  # below in the middle, and it may be above
        ([90.0, 90, 90, 90, 90, 130], [100.0] * 6, 0.95, GateVerdict.UNDECIDED),
        (
            [90.0, 91, 90, 89, 90, 90, 91, 90, 130],
            [100.0] * 9,
            0.95,
            GateVerdict.PASS,
        ),  # nine: one far from the bulk moves nothing
        ([90.0, 180, 45, 90, 180, 45], [100.0, 200, 50, 100, 200, 50], 0.95, GateVerdict.PASS),  # launch by launch
    ],
)
def test_the_rule(kernel_us: list[float], reference_us: list[float], at_most: float, verdict: str) -> None:
    [ratio] = compare_launches([(reference_us, kernel_us)], 0.95)
    assert apply_rule(ratio, at_most, 1)[0] == verdict


def test_among_many_rows_slow_must_be_surer() -> None:
    [ratio] = compare_launches([([100.0] * 6, [96.0, 95.5, 97.0, 96.5, 95.2, 96.2])], 0.95)
    assert (
        apply_rule(ratio, 0.95, 1)[0] == GateVerdict.SLOW and apply_rule(ratio, 0.95, 100)[0] == GateVerdict.UNDECIDED
    )


def test_what_is_undecided_says_how_many_launches_would_tell() -> None:
    [ratio] = compare_launches([([100.0] * 6, [90.0, 94, 99, 93, 98, 92])], 0.95)
    said = re.search(r"about (\d+) would be enough", apply_rule(ratio, 0.95, 1)[1])
    assert said and int(said[1]) > 6


def test_times_that_are_no_numbers_never_pass() -> None:
    nan = float("nan")
    for pair in (([100.0] * 6, [nan] * 6), ([nan] * 6, [90.0] * 6)):
        assert apply_rule(compare_launches([pair], 0.95)[0], 0.95, 1)[0] == GateVerdict.UNDECIDED


def test_a_kernel_that_is_fast_and_right_everywhere_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(tmp_path, Spec(times_us=FAST)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 4 + 1, "a line for each cell, the heading and the rule"
    assert all(" pass " in line and " 10 " in line for line in lines[1:5])
    assert lines[-1].endswith("correct in every environment: 4 pass")


@pytest.mark.parametrize(
    ("spec", "options", "code"),
    [
        (Spec(times_us=FAST), ["--at-most", "0.4"], 11),
        (Spec(times_us=HALF), [], 11),
        (Spec(times_us=HALF), ["--workload", "seed-fp32"], 0),
        (Spec(times_us=HALF), ["--at-most", "1"], 0),
        (Spec(), [], 11),  # as fast as the reference
        (Spec(times_us=FAST, launches=3), [], 0),  # half the time is seen with three
        (Spec(times_us=FAST, launches=1), [], 40),
        (Spec(times_us=HALF, spread=0.05), ["--at-most", "0.95"], 40),
        (Spec(times_us=FAST), ["--reference", "cudnn"], 40),
        (Spec(times_us=FAST, cases={(NEXT, "flash", "*"): Case(status="unsupported")}), [], 40),
        (Spec(times_us=FAST, cases={(NEXT, "kernel", "*"): Case(status="unsupported")}), [], 40),
        (Spec(times_us=FAST, cases={(NEXT, "kernel", "seed-fp16"): Case(passed=19)}), [], 10),
        (Spec(times_us=FAST, cases={(NEXT, "kernel", "*"): Case(status="crashed")}), [], 10),
        (Spec(times_us=FAST, mode="eval"), [], 40),  # the baseline has no times there
        (Spec(times_us=FAST, builds={NEXT: Outcome(status="build_failed")}), [], 20),
        (Spec(times_us=FAST, stacks={NEXT: Outcome(status="broken")}), [], 30),
        (Spec(times_us=FAST), ["--reference", "flsh"], 64),
        (Spec(times_us=FAST), ["--kernel", "other"], 64),
        (Spec(times_us=FAST), ["--at-most", "0"], 64),
        (Spec(times_us=FAST), ["--at-most", "1.1"], 64),
        (Spec(times_us=FAST), ["--times", "warm"], 64),
    ],
)
def test_exit_codes(
    tmp_path: Path, spec: Spec, options: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(tmp_path, spec, *options) == code
    assert "regressed" not in capsys.readouterr().err, "a gate compares no environment with another"


def test_one_wrong_version_fails_the_kernel_in_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = Spec(times_us=FAST, cases={(NEXT, "kernel", "seed-fp16"): Case(passed=19)})
    assert judge(tmp_path, spec) == 10
    lines = capsys.readouterr().out.splitlines()
    [base] = [line for line in lines if line.startswith(f"{BASE}/attention_scalar/seed-fp16")]
    assert "wrong" in base and f"not correct in {NEXT}" in base
    assert lines[-1].endswith("2 pass, 2 wrong"), "the other workload is another question"


def test_a_launch_of_another_output_is_wrong(tmp_path: Path) -> None:
    write_run(tmp_path, Spec(times_us=FAST))
    path = Run(tmp_path).launch_path(NEXT, "attention_scalar", "cpu", 3)
    record = load_record(path, LaunchRecord)
    timings = [replace(timing, **{"correct": False} if timing.target == "kernel" else {}) for timing in record.timings]
    save_record(path, replace(record, timings=timings))
    assert main(["gate", str(tmp_path), "--reference", "flash"]) == 10


def test_a_quick_run_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, Spec(times_us=FAST))
    run = Run(tmp_path)
    save_record(run.run_path(), replace(run.load(), quick=True))
    assert main(["gate", str(tmp_path), "--reference", "flash"]) == 40
    assert "quick" in capsys.readouterr().out


def test_a_gpu_is_judged_by_cold_calls_and_by_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = Spec(
        device="cuda", workloads=("seed-fp16",), times_us=FAST, cases={(NEXT, "kernel", "*"): Case(hot_slowdown=3.0)}
    )
    assert judge(tmp_path, spec) == 11
    lines = capsys.readouterr().out.splitlines()[1:-1]
    assert [("slow" in line, " hot " in line) for line in lines].count((True, True)) == 1 and len(lines) == 4
    assert judge(tmp_path / "again", spec, "--times", "cold") == 0
    without = Spec(
        device="cuda",
        workloads=("seed-fp16",),
        times_us=FAST,
        cases={(NEXT, "flash", "*"): Case(hot_message="cannot be captured")},
    )
    capsys.readouterr()
    assert judge(tmp_path / "without", without) == 40
    assert "no hot time of flash: cannot be captured" in capsys.readouterr().out


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert main(["gate", str(tmp_path)]) == 64


def test_what_a_candidate_says_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(status="unsupported", message="[red]\x1b[2Jgone")
    assert judge(tmp_path, Spec(times_us=FAST, cases={(NEXT, "kernel", "*"): case})) == 40
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("peak_mib", "options", "code"),
    [
        (8, [], 0),  # nobody asked
        (8, ["--memory-at-most", "1.5"], errors.MEMORY_REGRESSED),
        (5, ["--memory-at-most", "1.5"], 0),
        (None, ["--memory-at-most", "1.5"], errors.UNDECIDED),  # not measured
    ],
)
def test_memory_is_judged_where_a_share_is_given(
    peak_mib: int | None, options: list[str], code: int, tmp_path: Path
) -> None:
    """References need 4 MiB."""
    used = {(name, "kernel"): (peak_mib << 20, 0) for name in (BASE, NEXT)} if peak_mib else {}
    made = Spec(**FP16, peak_bytes=4 << 20 if peak_mib else None, peaks_bytes=used)  # type: ignore[arg-type]
    assert judge(tmp_path, made, *options) == code
