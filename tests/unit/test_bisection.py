"""From what was seen to the answer: steps, sentence, next command, page and summary; and what is read from records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.errors import RecordError
from harness.schema.bisection_records import (
    Aspect,
    BisectionRecord,
    CellSeen,
    PassCount,
    Probe,
    ProbeVerdict,
    Question,
    Release,
)
from harness.schema.environment_records import Observation
from harness.schema.records import ValidationRecord
from harness.schema.run_records import Cell, Fallback
from harness.schema.storage import load_record, save_record
from harness.search.bisect import observe
from harness.search.bisect.steps import Probes
from harness.search.times import read_medians
from reports.render.bisection import (
    describe_cell,
    find_next_command,
    render_answer,
    render_page,
    render_summary_text,
)
from tests.unit.hand_made import agreement, launch, target, timing, validation

NASTY = "<script>alert(1)</script> | `x`"
WHEN = "2026-01-01T00:00:00+00:00"
VERSIONS = ["2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0"]
OBSERVED = Observation(
    python="3.11.2",
    wheels={},
    machine="x86_64",
    cpu_model="made up",
    cpu_flags_sha256="0",
    threads=1,
    kernel_release="6",
    libc="glibc",
    torch_cuda="12.1",
)
OTHER_CUDA = replace(OBSERVED, torch_cuda="12.4")
GOOD, BAD, NEITHER = ProbeVerdict.GOOD, ProbeVerdict.BAD, ProbeVerdict.NEITHER


def question(**changes: Any) -> Question:
    values: dict[str, Any] = {
        "id": "2.1.0-2.5.0-correctness-math-0123",
        "created_utc": WHEN,
        "good": "2.1.0",
        "bad": "2.5.0",
        "command": ["nox", "-s", "bisect", "--", "--good", "2.1.0", "--what", "correctness", "--bad=2.5.0"],
        "what": Aspect.CORRECTNESS,
        "target": "math",
        "executor": "venv",
        "index": "https://pypi.org/simple",
        "every": False,
        "releases": [Release(version=version) for version in VERSIONS],
    }
    return Question(**values | changes)


def probe(version: str, verdict: ProbeVerdict, passed: int, **changes: Any) -> Probe:
    rates = {"independent": PassCount(passed=20, trials=20), "large_logits": PassCount(passed=passed, trials=20)}
    values: dict[str, Any] = {
        "version": version,
        "verdict": verdict,
        "observed": replace(OBSERVED, torch=f"{version}+cu121"),
        "cells": [CellSeen(cell="small-bf16/cpu", status="wrong", rates=rates)],
        "run": f"20260101-000000-{version.replace('.', '')}",
    }
    return Probe(**values | changes)


def timed(version: str, verdict: ProbeVerdict, ratio: float, low: float, high: float) -> Probe:
    values: dict[str, Any] = {"ratio": ratio, "low": low, "high": high, "median_us": 93.2, "replicates": 5}
    return probe(version, verdict, 0, cells=[CellSeen(cell="small-fp32/cpu", status="ok", min_effect=0.05, **values)])


def known(*probes: Probe, **changes: Any) -> Probes:
    return Probes(question(**changes), {each.version: each for each in probes})


def conclude(*probes: Probe, **changes: Any) -> BisectionRecord:
    """What follows from these, of all releases; of the others nothing was asked."""
    return known(*probes, **changes).conclude()


def one_step() -> BisectionRecord:
    between = probe("2.3.0", GOOD, 0), probe("2.4.0", BAD, 20)
    return conclude(probe("2.1.0", GOOD, 0), *between, probe("2.5.0", BAD, 20))


def test_one_step_is_told_with_what_changed_alone_and_the_run_that_saw_it() -> None:
    record = one_step()
    assert render_answer(record) == (
        "The correctness of math changed at 2.4.0, the one after 2.3.0: small-bf16/cpu: large_logits 0/20 in 2.3.0, "
        "large_logits 20/20 in 2.4.0."
    )
    assert find_next_command(record) == "nox -s report -- reports/runs/20260101-000000-240"
    assert (len(record.probes), record.most_environments) == (4, 5)


@pytest.mark.parametrize(
    ("probes", "monotonic", "said"),
    [
        (
            [probe("2.1.0", GOOD, 0), probe("2.3.0", ProbeVerdict.INCONCLUSIVE, 9), probe("2.5.0", BAD, 20)],
            True,
            "after 2.1.0 and not later than 2.5.0 (2.2.0, 2.3.0, 2.4.0 could not be told)",
        ),
        (
            [
                probe("2.1.0", GOOD, 0),
                probe("2.2.0", NEITHER, 10),
                probe("2.3.0", GOOD, 0),
                probe("2.4.0", BAD, 20),
                probe("2.5.0", BAD, 20),
            ],
            False,
            "changed in 3 steps: (1) at 2.2.0",
        ),
        (
            [
                probe("2.1.0", GOOD, 0),
                probe("2.4.0", GOOD, 0),
                probe("2.5.0", BAD, 20, observed=replace(OBSERVED, torch_cuda="12.4")),
            ],
            True,
            "there: 2.4.0 was built for CUDA 12.1, 2.5.0 for 12.4.",
        ),
    ],
    ids=["unknown between", "steps and a return", "another CUDA"],
)
def test_the_answer_says_as_much_as_is_known(probes: list[Probe], monotonic: bool, said: str) -> None:
    record = conclude(*probes)
    assert said in render_answer(record) and record.monotonic == monotonic
    assert ("not monotonic" in render_answer(record)) == (not monotonic)


def test_ends_that_are_alike_leave_the_other_question() -> None:
    ends = probe("2.1.0", GOOD, 0), probe("2.5.0", GOOD, 0)
    record = conclude(*ends)
    assert render_answer(record).startswith("No difference in correctness of math between 2.1.0 and 2.5.0 was found: ")
    assert find_next_command(record) == "nox -s bisect -- --good 2.1.0 --bad=2.5.0 --what latency"
    backwards = conclude(*ends, what=Aspect.LATENCY, command=["nox", "--what=latency"])
    assert find_next_command(backwards) == "nox --what correctness"


def test_a_version_is_asked_between_those_that_differ_and_judged_by_its_neighbours() -> None:
    probes = known(probe("2.1.0", GOOD, 0), probe("2.5.0", BAD, 20))
    assert probes.next_version() == "2.3.0"
    left, right = probes.find_neighbours("2.3.0")
    assert (left.version, right.version) == ("2.1.0", "2.5.0")
    for passed, verdict in ((0, GOOD), (20, BAD), (10, NEITHER)):
        assert probes.find_verdict("2.3.0", probe("2.3.0", GOOD, passed).cells) is verdict


def test_a_time_is_never_shown_without_its_interval_and_count() -> None:
    [slow], [good] = timed("2.4.0", BAD, 1.684, 1.32, 2.0).cells, timed("2.1.0", GOOD, 1, 1, 1).cells
    assert all(part in describe_cell(slow) for part in ("1.684", "[1.320, 2.000]", "93.2 us, 5 replicates"))
    assert "the measure of the others (93.2 us" in describe_cell(good)


def test_every_release_is_a_row_of_the_page_and_of_the_summary() -> None:
    releases = [*question().releases[:4], Release(version="2.4.1", skipped="no wheel"), question().releases[4]]
    record = conclude(probe("2.1.0", GOOD, 0), probe("2.5.0", BAD, 20), releases=releases)
    verdicts = [line.split(" | ")[-1] for line in render_summary_text(record).splitlines() if line.startswith("| 2.")]
    assert verdicts == ["good |", *["not tried |"] * 3, "skipped |", "bad |"]
    assert all(said in render_page(record) for said in ("no wheel", "not tried", *(each.version for each in releases)))


def test_the_page_shows_times_fallbacks_and_what_is_not_monotonic() -> None:
    fallback = Fallback(subject="torch2.1.0", wanted="https://own", got="https://pypi", reason="unreachable")
    record = conclude(
        timed("2.1.0", GOOD, 1, 1, 1),
        timed("2.3.0", BAD, 2.1, 1.9, 2.4),
        timed("2.4.0", GOOD, 1.0, 0.98, 1.02),
        timed("2.5.0", BAD, 2.0, 1.9, 2.2),
        what=Aspect.LATENCY,
        fallbacks=[fallback],
    )
    page = render_page(record)
    assert page.count('class="forest"') == 4 and "Not monotonic" in page and "unreachable" in page
    assert "https://pypi" in render_summary_text(record)


def test_what_a_record_says_is_escaped() -> None:
    cell = CellSeen(cell="small-bf16/cpu", status="unsupported", message=NASTY)
    record = conclude(probe("2.1.0", GOOD, 0), probe("2.5.0", BAD, 0, cells=[cell]), target=NASTY)
    assert "<script>" not in render_page(record)
    assert "<script>" not in render_summary_text(record) and "| `x`" not in render_summary_text(record)


def test_the_report_is_written_beside_its_record_which_must_be_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 64
    record, path = one_step(), tmp_path / "bisection.json"
    save_record(path, record)
    assert load_record(path, BisectionRecord) == record and main(["report", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert render_answer(record) in printed and f"next: {find_next_command(record)}" in printed
    assert "2.4.0" in (tmp_path / "summary.md").read_text()
    assert render_answer(record) in (tmp_path / "index.html").read_text()
    path.write_text(path.read_text().replace("2.4.0", "2.2.0"))
    with pytest.raises(RecordError, match="edited or damaged"):
        load_record(path, BisectionRecord)
    assert main(["report", str(tmp_path)]) == 64


# -- what is read from a run ---------------------------------------------------------------------------------------


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
    seen = observe.rate_cell("mine/w/cpu", validation(target(**result), trials=20), "kernel")
    assert seen.rates == {"independent": PassCount(passed=passed, trials=20)}
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
    seen = observe.rate_cell("w/cpu", record, of)
    assert (seen.status, seen.message, seen.rates) == (status, message, {})


def test_a_reference_is_judged_even_where_the_kernel_beside_it_did_not_build() -> None:
    beside = validation(target(20, target="math"), status="build_failed")
    assert observe.rate_cell("w/cpu", beside, "math").rates


def test_a_time_is_compared_in_the_rounds_that_both_versions_have() -> None:
    math = {"target": "math", "message": "why"}
    launches = [
        launch(timing(2, **math), index=0),
        launch(timing(status="crashed", **math), index=1),
        launch(timing(2, **math), index=2),
        *(launch(timing(us, **math), environment="other", index=index) for index, us in enumerate((6, 7, 6))),
    ]
    times = read_medians(launches, "math")
    place = {"kernel": "mine", "workload": "w", "device": "cpu"}
    here, other = (Cell(environment=name, **place) for name in ("e", "other"))  # type: ignore[arg-type]
    seen = observe.time_cell("w/cpu", times, other, "e", 0.95, 0.05)
    assert (seen.ratio, seen.replicates, seen.median_us) == (pytest.approx(3), 2, 6)
    good = observe.time_cell("w/cpu", times, here, "e", 0.95, 0.05)
    assert good.low == good.ratio == good.high == 1
    assert observe.time_cell("w/cpu", {}, other, "e", 0.95, 0.05).status == "not_run"
