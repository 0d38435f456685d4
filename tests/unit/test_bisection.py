"""From what was seen to the answer: records, sentence, next command, page and summary; and the command's options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.errors import RecordError
from harness.schema.bisection_records import BisectionRecord, CellSeen, Question, Rate, Release, VersionRecord
from harness.schema.records import ValidationRecord
from harness.schema.run_records import Fallback
from harness.schema.storage import load_record, save_record
from harness.search.bisect import observe
from harness.search.bisect.answer import conclude, describe, print_table
from harness.search.bisect.plan import UNKNOWN
from reports.render.bisection import release_rows, render_page, render_summary_text
from tests.unit.hand_made import agreement, launch, target, timing, validation

NASTY = "<script>alert(1)</script> | `x`"


WHEN = "2026-01-01T00:00:00+00:00"
VERSIONS = ["2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0"]


def question(**changes: Any) -> Question:
    values: dict[str, Any] = {
        "id": "2.1.0-2.5.0-correctness-math-0123",
        "created_utc": WHEN,
        "good": "2.1.0",
        "bad": "2.5.0",
        "command": ["nox", "-s", "bisect", "--", "--good", "2.1.0", "--what", "correctness", "--bad=2.5.0"],
        "what": "correctness",
        "target": "math",
        "kernels": ["mine"],
        "workloads": ["small-bf16"],
        "devices": ["cpu"],
        "executor": "venv",
        "index": "https://pypi.org/simple",
        "level": 0.05 / 3,
        "looks": [1, 2, 4],
        "every": False,
        "releases": [Release(version=version) for version in VERSIONS],
        "min_effect": {"cpu": 0.05, "cuda": 0.01},
    }
    return Question(**values | changes)


def version(name: str, label: int | None, passed: int, trials: int = 20, **changes: Any) -> VersionRecord:
    rates = {"independent": Rate(passed=20, trials=20), "large_logits": Rate(passed=passed, trials=trials)}
    values: dict[str, Any] = {
        "version": name,
        "label": label,
        "status": "ok",
        "torch": f"{name}+cu121",
        "torch_cuda": "12.1",
        "verdict": "undecided" if label is None else {0: "good", 1: "bad"}.get(label, "neither"),
        "cells": [CellSeen(cell="small-bf16/cpu", status="wrong", rates=rates)],
        "run": f"20260101-000000-{name.replace('.', '')}",
        "started_utc": WHEN,
        "duration_s": 10.0,
    }
    return VersionRecord(**values | changes)


def concluded(*records: VersionRecord, releases: list[Release] | None = None, **changes: Any) -> BisectionRecord:
    """What follows from these, of all releases; of the others nothing was asked."""
    asked = question(**changes, **({"releases": releases} if releases else {}))
    known = {record.version: UNKNOWN if record.label is None else record.label for record in records}
    labels = [UNKNOWN if release.skipped else known.get(release.version) for release in asked.releases]
    return conclude(asked, records, labels)


def one_step() -> BisectionRecord:
    return concluded(version("2.1.0", 0, 0), version("2.3.0", 0, 0), version("2.4.0", 1, 20), version("2.5.0", 1, 20))


def test_a_step_is_told_where_only_some_of_its_versions_had_trials_enough_to_show_it() -> None:
    record = concluded(
        version("2.1.0", 0, 10),
        version("2.3.0", 2, 0, trials=3),
        version("2.4.0", 2, 0, trials=10),
        version("2.5.0", 1, 5, trials=5),
    )
    assert "(2) at 2.5.0, the one after 2.4.0: small-bf16/cpu: large_logits 0/10 in 2.4.0" in record.answer


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


def test_versions_that_could_not_be_told_widen_the_answer() -> None:
    record = concluded(version("2.1.0", 0, 0), version("2.3.0", None, 9), version("2.5.0", 1, 20))
    assert "after 2.1.0 and not later than 2.5.0 (2.2.0, 2.3.0, 2.4.0 between them could not be told)" in record.answer


def test_two_steps_and_what_comes_back() -> None:
    passed = {"2.1.0": (0, 0), "2.2.0": (2, 10), "2.3.0": (0, 0), "2.4.0": (1, 20), "2.5.0": (1, 20)}
    record = concluded(*(version(name, *each) for name, each in passed.items()))
    assert "changed in 3 steps: (1) at 2.2.0" in record.answer and "(3) at 2.4.0" in record.answer
    assert not record.monotonic and "not monotonic" in record.answer


def test_another_cuda_build_at_the_step_is_said() -> None:
    record = concluded(version("2.1.0", 0, 0), version("2.4.0", 0, 0), version("2.5.0", 1, 20, torch_cuda="12.4"))
    assert "Not only PyTorch's version differs there: 2.4.0 was built for CUDA 12.1, 2.5.0 for 12.4." in record.answer


def test_ends_that_are_alike_leave_the_other_question() -> None:
    ends = version("2.1.0", 0, 0), version("2.5.0", 0, 0)
    record = concluded(*ends)
    assert record.answer.startswith("No difference in correctness of math between 2.1.0 and 2.5.0 was found")
    assert record.next_command == "nox -s bisect -- --good 2.1.0 --bad=2.5.0 --what latency"
    backwards = concluded(*ends, what="latency", command=["nox", "--what=latency"])
    assert backwards.next_command == "nox --what correctness"


def test_a_time_is_never_shown_without_its_interval_and_count() -> None:
    assert describe(timed("2.4.0", 1, 1.684, 1.32, 2.0)) == (
        "small-fp32/cpu: 1.68 times the good one's [1.32 to 2] (93.2 us, 5 launches)"
    )
    assert "the measure of the others (93.2 us, 5 launches)" in describe(timed("2.1.0", 0, 1, 1, 1))


def test_every_release_is_a_row_of_the_table_and_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    releases = [*question().releases[:4], Release(version="2.4.1", skipped="no wheel"), question().releases[4]]
    record = concluded(version("2.1.0", 0, 0), version("2.5.0", 1, 20), releases=releases)
    found = {row["version"]: row["verdict"] for row in release_rows(record)}
    assert list(found) == [release.version for release in releases]
    assert (found["2.2.0"], found["2.4.1"], found["2.5.0"]) == ("not tried", "skipped", "bad")
    print_table(record)
    printed = capsys.readouterr().out
    for text in (printed, render_page(record), render_summary_text(record)):
        assert all(said in text for said in ("no wheel", *found))


def test_the_page_shows_times_fallbacks_and_what_is_not_monotonic() -> None:
    fallback = Fallback(subject="torch2.1.0", wanted="https://own", got="https://pypi", reason="unreachable")
    record = concluded(
        timed("2.1.0", 0, 1, 1, 1),
        timed("2.3.0", 1, 2.1, 1.9, 2.4),
        timed("2.4.0", 0, 1.0, 0.98, 1.02),
        timed("2.5.0", 1, 2.0, 1.9, 2.2),
        what="latency",
        looks=[5, 10, 20],
        fallbacks=[fallback],
    )
    page = render_page(record)
    assert page.count('class="forest"') == 4 and "Not monotonic" in page and "unreachable" in page
    assert "cpu 0.05, cuda 0.01" in page and "https://pypi" in render_summary_text(record)


def test_what_a_record_says_is_escaped() -> None:
    cell = CellSeen(cell="small-bf16/cpu", status="unsupported", message=NASTY)
    record = concluded(version("2.1.0", 0, 0), version("2.5.0", 1, 0, cells=[cell]), target=NASTY)
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
    assert main(["report", str(tmp_path)]) == 64
    assert "it has no run.json" in capsys.readouterr().err
    save_record(tmp_path / "question.json", question())
    assert main(["report", str(tmp_path)]) == 64
    assert "not finished" in capsys.readouterr().err
    save_record(tmp_path / "bisection.json", one_step())
    path = tmp_path / "bisection.json"
    path.write_text(path.read_text().replace("2.4.0", "2.2.0"))
    with pytest.raises(RecordError, match="edited or damaged"):
        load_record(path, BisectionRecord)
    assert main(["report", str(tmp_path)]) == 64


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
def test_a_trial_passes_where_nothing_is_wrong_with_it(result: dict[str, Any], passed: int) -> None:
    seen = observe.validated("mine/w/cpu", validation(target(**result), trials=20), "kernel")
    assert seen.rates == {"independent": Rate(passed=passed, trials=20)}
    assert seen.status == ("ok" if passed == 20 else "wrong")


REFUSED = target(target="flash", status="unsupported", message="no kernel", against=[])
RIGHT = target(20)


@pytest.mark.parametrize(
    ("record", "of", "status", "message"),
    [
        (validation(REFUSED, RIGHT), "flash", "unsupported", "no kernel"),
        (validation(RIGHT), "flash", "not_run", "its outputs were not judged"),
        (None, "flash", "not_run", "the run holds no validation of it"),
        (validation(REFUSED, status="build_failed", message="error: x"), "kernel", "build_failed", "error: x"),
    ],
)
def test_what_did_not_run_has_a_status_and_no_rate(
    record: ValidationRecord | None, of: str, status: str, message: str
) -> None:
    seen = observe.validated("w/cpu", record, of)
    assert (seen.status, seen.message, seen.rates) == (status, message, {})


def test_a_reference_is_judged_even_where_the_kernel_beside_it_did_not_build() -> None:
    beside = validation(target(20, target="math"), status="build_failed")
    assert observe.validated("w/cpu", beside, "math").rates


def test_medians_are_those_of_the_launches_that_went_well() -> None:
    math = {"target": "math", "message": "why"}
    launches = [
        launch(timing(3, 1, 2, **math)),
        launch(timing(status="crashed", **math)),
        launch(timing(9, **math), environment="other"),
    ]
    place: observe.Place = ("mine", "w", "cpu")
    assert observe.medians(launches, "e", place, "math") == ([2.0], "")
    assert observe.medians(launches[1:], "e", place, "math") == ([], "why")
    assert observe.medians([], "e", place, "math")[1] == "no launch of it is recorded"
    assert observe.timed("w/cpu", [1.0], [], level=0.01, same=False, why="why").message == "why"
