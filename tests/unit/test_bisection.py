"""From what was seen to the answer: records, sentence, next command, page and summary; and the command's options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.schema.bisection_records import BisectionRecord, CellSeen, Question, Rate, Release, VersionRecord
from harness.schema.records import Agreement, RecipeResult, TargetResult, Timing, ValidationRecord
from harness.schema.run_records import Fallback
from harness.schema.storage import load_record, save_record
from harness.search.bisect import observe
from harness.search.bisect.answer import conclude, describe, print_table
from reports.render.bisection import release_rows, render_page, render_summary_text
from tests.unit.test_records import launch

NASTY = "<script>alert(1)</script> | `x`"


def question(**changes: object) -> Question:
    versions = ["2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0"]
    values: dict[str, object] = {
        "id": "2.1.0-2.5.0-correctness-math-0123",
        "created_utc": "2026-01-01T00:00:00+00:00",
        "command": ["nox", "-s", "bisect", "--", "--good", "2.1.0", "--what", "correctness", "--bad=2.5.0"],
        "good": "2.1.0",
        "bad": "2.5.0",
        "what": "correctness",
        "target": "math",
        "kernels": ["mine"],
        "workloads": ["small-bf16"],
        "devices": ["cpu"],
        "executor": "venv",
        "index": "https://pypi.org/simple",
        "releases": [Release(version=version) for version in versions],
        "level": 0.05 / 3,
        "looks": [1, 2, 4],
        "min_effect": {"cpu": 0.05, "cuda": 0.01},
        "every": False,
    }
    return Question(**{**values, **changes})  # type: ignore[arg-type]


def version(name: str, label: int | None, passed: int, trials: int = 20, **changes: object) -> VersionRecord:
    rates = {"independent": Rate(passed=20, trials=20), "large_logits": Rate(passed=passed, trials=trials)}
    values: dict[str, object] = {
        "version": name,
        "verdict": "undecided" if label is None else {0: "good", 1: "bad"}.get(label, "neither"),
        "label": label,
        "status": "ok",
        "torch": f"{name}+cu121",
        "torch_cuda": "12.1",
        "cells": [CellSeen(cell="small-bf16/cpu", status="wrong", rates=rates)],
        "run": f"20260101-000000-{name.replace('.', '')}",
        "started_utc": "2026-01-01T00:00:00+00:00",
        "duration_s": 10.0,
    }
    return VersionRecord(**{**values, **changes})  # type: ignore[arg-type]


def one_step() -> BisectionRecord:
    return conclude(question(), [version(*each) for each in FOUR], [0, None, 0, 1, 1])


def timed(name: str, label: int, ratio: float, low: float, high: float) -> VersionRecord:
    cell = CellSeen(cell="small-fp32/cpu", status="ok", ratio=ratio, low=low, high=high, median_us=93.2, launches=5)
    return version(name, label, 0, cells=[cell])


def test_one_step_is_told_with_what_moved_alone_and_the_run_that_saw_it() -> None:
    record = one_step()
    assert record.answer == (
        "The correctness of math changed at 2.4.0, the one after 2.3.0: small-bf16/cpu: large_logits 0/20 in 2.3.0, "
        "large_logits 20/20 in 2.4.0."
    )
    assert record.next_command == "nox -s report -- reports/runs/20260101-000000-240"
    assert (record.environments, record.most_environments, record.duration_s) == (4, 5, 40.0)


FOUR = ("2.1.0", 0, 0), ("2.3.0", 0, 0), ("2.4.0", 1, 20), ("2.5.0", 1, 20)


@pytest.mark.parametrize(
    ("versions", "steps", "words"),
    [
        # Some could not be told: the answer is wider.
        ([("2.1.0", 0, 0), ("2.3.0", None, 9), ("2.5.0", 1, 20)], [0, -1, -1, -1, 1],
         ["after 2.1.0 and not later than 2.5.0 (2.2.0, 2.3.0, 2.4.0 between them could not be told)"]),
        # Only some of a step's versions had trials enough to show it.
        ([("2.1.0", 0, 10), ("2.3.0", 2, 0, 3), ("2.4.0", 2, 0, 10), ("2.5.0", 1, 5, 5)], [0, None, 2, 2, 1],
         ["(2) at 2.5.0, the one after 2.4.0: small-bf16/cpu: large_logits 0/10 in 2.4.0"]),
        ([FOUR[0], ("2.2.0", 2, 10), *FOUR[1:]], [0, 2, 0, 1, 1],
         ["changed in 3 steps: (1) at 2.2.0", "(3) at 2.4.0", "not monotonic"]),
    ],
)  # fmt: skip
def test_steps_are_told_as_far_as_known(versions: list[Any], steps: list[int | None], words: list[str]) -> None:
    record = conclude(question(), [version(*each) for each in versions], steps)
    assert all(text in record.answer for text in words)
    assert record.monotonic == ("not monotonic" not in record.answer)


def test_another_cuda_build_at_the_step_is_said() -> None:
    records = [version("2.1.0", 0, 0), version("2.4.0", 0, 0), version("2.5.0", 1, 20, torch_cuda="12.4")]
    answer = conclude(question(), records, [0, -1, -1, 0, 1]).answer
    assert "Not only PyTorch's version differs there: 2.4.0 was built for CUDA 12.1, 2.5.0 for 12.4." in answer


def test_ends_that_are_alike_leave_the_other_question() -> None:
    record = conclude(question(), [version("2.1.0", 0, 0), version("2.5.0", 0, 0)], [0, None, None, None, 0])
    assert record.answer.startswith("No difference in correctness of math between 2.1.0 and 2.5.0 was found")
    assert record.next_command == "nox -s bisect -- --good 2.1.0 --bad=2.5.0 --what latency"
    backwards = question(what="latency", command=["nox", "--what=latency"])
    assert conclude(backwards, record.versions, [0, None, None, None, 0]).next_command == "nox --what correctness"


def test_a_time_is_never_shown_without_its_interval_and_count() -> None:
    assert describe(timed("2.4.0", 1, 1.684, 1.32, 2.0)) == (
        "small-fp32/cpu: 1.68 times the good one's [1.32 to 2] (93.2 us, 5 launches)"
    )
    assert "the measure of the others (93.2 us, 5 launches)" in describe(timed("2.1.0", 0, 1, 1, 1))


def test_every_release_is_a_row_of_the_table_and_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    releases = [*question().releases[:4], Release(version="2.4.1", skipped="no wheel"), question().releases[4]]
    records = [version("2.1.0", 0, 0), version("2.5.0", 1, 20)]
    record = conclude(question(releases=releases), records, [0, None, None, None, -1, 1])
    found = {row["version"]: row["verdict"] for row in release_rows(record)}
    assert list(found) == [release.version for release in releases]
    assert (found["2.2.0"], found["2.4.1"], found["2.5.0"]) == ("not tried", "skipped", "bad")
    print_table(record)
    printed = capsys.readouterr().out
    page, summary = render_page(record), render_summary_text(record)
    for release in releases:
        assert release.version in printed and release.version in page and release.version in summary
    assert "no wheel" in printed and "no wheel" in page and "no wheel" in summary


def test_the_page_shows_times_fallbacks_and_what_is_not_monotonic() -> None:
    records = [timed("2.1.0", 0, 1, 1, 1), timed("2.3.0", 1, 2.1, 1.9, 2.4), timed("2.4.0", 0, 1.0, 0.98, 1.02),
               timed("2.5.0", 1, 2.0, 1.9, 2.2)]  # fmt: skip
    fallback = Fallback(subject="torch2.1.0", wanted="https://own", got="https://pypi", reason="unreachable")
    asked = question(what="latency", target="math", looks=[5, 10, 20], fallbacks=[fallback])
    record = conclude(asked, records, [0, None, 1, 0, 1])
    page = render_page(record)
    assert page.count('class="forest"') == 4 and "Not monotonic" in page and "unreachable" in page
    assert "cpu 0.05, cuda 0.01" in page and "https://pypi" in render_summary_text(record)


def test_what_a_record_says_is_escaped() -> None:
    cell = CellSeen(cell="small-bf16/cpu", status="unsupported", message=NASTY)
    records = [version("2.1.0", 0, 0), version("2.5.0", 1, 0, cells=[cell])]
    record = conclude(question(target=NASTY), records, [0, -1, -1, -1, 1])
    assert "<script>" not in render_page(record)
    assert "<script>" not in render_summary_text(record) and "| `x`" not in render_summary_text(record)


def test_the_report_is_written_beside_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = one_step()
    save_record(tmp_path / "bisection.json", record)
    assert load_record(tmp_path / "bisection.json", BisectionRecord) == record
    assert main(["report", str(tmp_path)]) == 0
    assert record.answer in capsys.readouterr().out
    assert record.answer.replace("_", "\\_") in (tmp_path / "summary.md").read_text()
    assert record.answer in (tmp_path / "index.html").read_text()


def test_a_bisection_that_is_missing_unfinished_or_edited_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> str:
        assert main(["report", str(tmp_path)]) == 64
        return capsys.readouterr().err

    assert "it has no run.json" in refused()
    save_record(tmp_path / "question.json", question())
    assert "not finished" in refused()
    path = tmp_path / "bisection.json"
    save_record(path, one_step())
    path.write_text(path.read_text().replace("2.4.0", "2.2.0"))
    assert "edited or damaged" in refused()


def agreement(passed: int, against: str = "truth") -> Agreement:
    return Agreement(against=against, passed={"rounding": passed, "kernelbench": 20}, max_abs=None, mean_abs=None,
                     within_strict_share=1, nonfinite_trials=0, histogram=[], worst=None)  # fmt: skip


def validation(*targets: TargetResult, status: str = "ok", message: str = "") -> ValidationRecord:
    recipe = RecipeResult(
        recipe="independent", trials=20, input_sha256=[], truth_sha256=[], rounding_cost=[], targets=list(targets)
    )
    return ValidationRecord(environment="e", kernel="mine", workload="w", device="cpu", key="k", decides="rounding",
                            limits={}, recipes=[recipe] if targets else [], started_utc="", duration_s=0,
                            status=status, message=message)  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(
    ("result", "passed"),
    [
        ({"against": [agreement(19)]}, 19),
        ({"against": [agreement(3, "math"), agreement(19)]}, 19),  # the truth decides
        ({"against": [agreement(20)], "repeats_differ": 4}, 20),  # a property, and no fault
        ({"against": [agreement(20)], "inputs_mutated": 20}, 0),
        ({"against": [agreement(10)], "unwritten_trials": 15}, 5),
    ],
)
def test_a_trial_passes_where_nothing_is_wrong_with_it(result: dict[str, object], passed: int) -> None:
    record = validation(TargetResult(target="kernel", status="ok", **result))  # type: ignore[arg-type]
    seen = observe.validated("mine/w/cpu", record, "kernel")
    assert seen.rates == {"independent": Rate(passed=passed, trials=20)}
    assert seen.status == ("ok" if passed == 20 else "wrong")


def test_what_did_not_run_has_a_status_and_no_rate() -> None:
    refused = TargetResult(target="flash", status="unsupported", message="no kernel")
    right = TargetResult(target="kernel", status="ok", against=[agreement(20)])
    assert observe.validated("w/cpu", validation(refused, right), "flash").status == "unsupported"
    assert observe.validated("w/cpu", validation(right), "flash").status == "not_run"
    assert observe.validated("w/cpu", None, "flash").status == "not_run"
    failed = validation(refused, status="build_failed", message="error: x")
    assert observe.validated("mine/w/cpu", failed, "kernel").message == "error: x"
    # A reference is judged even where the kernel beside it did not build.
    beside = TargetResult(target="math", status="ok", against=[agreement(20)])
    assert observe.validated("w/cpu", validation(beside, status="build_failed"), "math").rates


def test_medians_are_those_of_the_launches_that_went_well() -> None:
    def timing(status: str, *samples: float) -> Timing:
        return Timing(workload="w", target="math", order=0, status=status, samples_us=list(samples), message="why")  # type: ignore[arg-type]

    launches = [
        launch(environment="e", timings=[timing("ok", 3, 1, 2)]),
        launch(environment="e", timings=[timing("crashed")]),
        launch(environment="other", timings=[timing("ok", 9)]),
    ]
    assert observe.medians(launches, "e", ("mine", "w", "cpu"), "math") == ([2.0], "")
    assert observe.medians(launches[1:], "e", ("mine", "w", "cpu"), "math") == ([], "why")
    assert observe.medians([], "e", ("mine", "w", "cpu"), "math")[1] == "no launch of it is recorded"
    assert observe.timed("w/cpu", [1.0], [], level=0.01, same=False, why="why").message == "why"
