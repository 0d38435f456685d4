"""`bisect` as a whole, with scripted versions: the answer, what it costs, what it leaves, and kill -9 at any moment."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.schema.bisection_records import BisectionRecord, VersionRecord
from harness.schema.storage import load_record
from tests.faults.scripted import (
    BROKEN,
    NIGHTLIES,
    RELEASES,
    STORY,
    Scripted,
    check_search_survives_kills,
    commit_of,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
OPTIONS = ("--good=2.1.0", "--bad=2.5.0", "--workload=first")
TEN = (*OPTIONS, "--trials=10")
ENDS = ["torch2.1.0", "torch2.5.0"]  # what is left, since matrix.yaml names them
OWN = {"run", "duration_s", "started_utc", "environment_key"}


def project(folder: Path, *changes: tuple[str, dict[str, float]], versions: Sequence[str] = RELEASES) -> Scripted:
    """A project whose versions behave as told from the named version on."""
    scripted = Scripted(folder, versions)
    told: dict[str, dict[str, float]] = {}
    current: dict[str, float] = {"passes": 1.0, "times": 1.0}
    for version in versions:
        current = current | dict(changes).get(version, {})
        told[version] = current
    (scripted.root / STORY).write_text(json.dumps(told))
    return scripted


def folders(scripted: Scripted) -> list[Path]:
    return sorted((scripted.root / "reports" / "bisections").glob("*"))


def result(scripted: Scripted) -> BisectionRecord:
    [folder] = folders(scripted)
    return load_record(folder / "bisection.json", BisectionRecord)


def bisect(scripted: Scripted, *options: str, code: int = 0) -> tuple[BisectionRecord, str]:
    """(the record, what was printed) of a bisection that ends with this code."""
    printed = scripted.done(*(options or TEN), verb="bisect", code=code)
    return result(scripted), printed


def steps(record: BisectionRecord) -> list[tuple[str, str]]:
    return [(step.before, step.after) for step in record.steps]


def made(scripted: Scripted) -> list[str]:
    return sorted(path.name.split("-")[0] for path in (scripted.cache / "environments").iterdir())


def told(record: BisectionRecord) -> list[dict[str, Any]]:
    return [{name: value for name, value in vars(version).items() if name not in OWN} for version in record.versions]


def test_one_step_is_found_within_the_bound_and_only_the_ends_are_left(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    record, printed = bisect(scripted)
    assert steps(record) == [("2.2.2", "2.3.0")] and record.monotonic
    assert record.environments <= record.most_environments == 6
    assert "The correctness of kernel changed at 2.3.0, the one after 2.2.2" in printed
    assert "skipped: 2.3.2: no wheel for Python 3.11 on this machine" in printed
    assert "2.2.9" not in printed and "rc1" not in printed
    assert made(scripted) == ENDS
    assert not (scripted.root / "reports" / "latest").exists(), "a step of a bisection is not the latest report"
    [folder] = folders(scripted)
    assert main(["report", str(folder)]) == 0
    assert "2.3.0" in (folder / "summary.md").read_text() and (folder / "index.html").is_file()
    # What the answer names next can be done.
    assert (scripted.root / record.next_command.rpartition(" ")[2] / "run.json").is_file()
    # The same command again asks nobody and redoes nothing.
    before = scripted.kept
    _, printed = bisect(scripted)
    assert "going on" in printed and "made and proven" not in printed
    assert scripted.kept == before and made(scripted) == ENDS


def test_a_bisection_by_date_tells_the_commits_between_the_two_wheels(tmp_path: Path) -> None:
    first, last = NIGHTLIES[0], NIGHTLIES[-1]
    scripted = project(tmp_path, (NIGHTLIES[3], {"passes": 0.0}), versions=NIGHTLIES)
    record, printed = bisect(scripted, f"--good={first}", f"--bad={last}", "--workload=first", "--trials=10")
    assert steps(record) == [(NIGHTLIES[2], NIGHTLIES[3])]
    assert [release.version for release in record.question.releases] == list(NIGHTLIES)
    commits = f"https://github.com/pytorch/pytorch/compare/{commit_of(NIGHTLIES[2])}...{commit_of(NIGHTLIES[3])}"
    assert commits in printed and "6 nightlies; where one step explains it" in printed
    [folder] = folders(scripted)
    assert main(["report", str(folder)]) == 0
    assert f'href="{commits}"' in (folder / "index.html").read_text() and commits in (folder / "summary.md").read_text()


def test_environments_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.5.0", {"passes": 0.0}))
    record, _ = bisect(scripted, *TEN, "--keep")
    assert len(made(scripted)) == record.environments > 2


def test_an_end_that_the_matrix_does_not_name_is_removed_too(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    record, _ = bisect(scripted, "--good=2.1.1", "--bad=2.4.1", "--workload=first", "--trials=10")
    assert steps(record) == [("2.2.2", "2.3.0")] and made(scripted) == []


def test_two_steps_are_both_told(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.2.0", {"passes": 0.5}), ("2.4.0", {"passes": 0.0}))
    record, _ = bisect(scripted, *OPTIONS, "--trials=40")
    assert steps(record) == [("2.1.2", "2.2.0"), ("2.3.1", "2.4.0")]
    assert "in 2 steps" in record.answer
    assert {version.verdict for version in record.versions} == {"good", "neither", "bad"}


def test_what_comes_back_is_said(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.1.2", {"passes": 0.0}), ("2.3.0", {"passes": 1.0}), ("2.4.1", {"passes": 0.0}))
    record, _ = bisect(scripted, *OPTIONS, "--trials=10", "--every")
    assert steps(record) == [("2.1.1", "2.1.2"), ("2.2.2", "2.3.0"), ("2.4.0", "2.4.1")]
    assert not record.monotonic and "not monotonic" in record.answer
    assert record.environments == len(RELEASES)


def test_a_version_that_cannot_be_made_is_skipped_with_its_reason(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    (scripted.root / BROKEN).write_text("2.2.2 2.3.0")
    record, _ = bisect(scripted)
    [step] = record.steps
    assert (step.before, step.after, step.unknown) == ("2.2.1", "2.3.1", ["2.2.2", "2.3.0"])
    assert "after 2.2.1 and not later than 2.3.1" in record.answer
    skipped = next(version for version in record.versions if version.version == "2.2.2")
    assert skipped.verdict == "skipped" and "the index cannot be reached" in skipped.message
    assert made(scripted) == ENDS, "half an environment is left behind"


def test_an_end_that_cannot_be_made_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    (scripted.root / BROKEN).write_text("2.5.0")
    assert "the same command then goes on from here" in scripted.done(*TEN, verb="bisect", code=30)
    assert main(["report", str(folders(scripted)[0])]) == 64  # nothing to render yet
    (scripted.root / BROKEN).unlink()
    assert steps(bisect(scripted)[0]) == [("2.2.2", "2.3.0")]


def test_ends_that_do_not_differ_say_so_and_name_the_other_question(tmp_path: Path) -> None:
    scripted = project(tmp_path)
    record, _ = bisect(scripted)
    assert not record.steps and record.environments == 2
    assert record.answer.startswith("No difference in correctness of kernel between 2.1.0 and 2.5.0 was found")
    assert record.next_command.endswith("--what latency")


def test_a_version_that_cannot_be_decided_is_undecided_and_strict_says_it_by_its_code(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.1.1", {"passes": 0.9}), ("2.5.0", {"passes": 0.6}))
    record, _ = bisect(scripted, *TEN, "--strict", code=40)
    assert {version.verdict for version in record.versions} == {"good", "undecided", "bad"}
    assert record.versions[1].looks == 3 and "could not be told" in record.answer


def test_latency_is_bisected_with_the_fewest_launches_that_decide(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.4.0", {"times": 2.0}))
    record, _ = bisect(scripted, *OPTIONS, "--what=latency", "--target=math")
    assert steps(record) == [("2.3.1", "2.4.0")]
    assert all(version.cells[0].launches == 5 and version.looks == 1 for version in record.versions)
    [difference] = record.steps[0].differences
    assert difference.cell == "first-fp32/cpu" and difference.after.startswith("2")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ((*OPTIONS, "--target=flash"), 64, "choose from: kernel, math"),
        (("--good=2.1.0", "--bad=2.2.7"), 64, "2.2.7"),
        (("--good=2.5.0", "--bad=2.1.0"), 64, "must be the earlier"),
        (("--good=2.1.0", "--bad=2.5.0", "--workload=crashes", "--what=latency"), 30, "no time of kernel at both ends"),
    ],
    ids=["reference", "version", "order", "no time"],
)
def test_what_cannot_be_bisected_is_refused(tmp_path: Path, options: tuple[str, ...], code: int, words: str) -> None:
    printed = project(tmp_path, ("2.4.0", {"times": 2.0})).done(*options, verb="bisect", code=code)
    assert words in printed and (code == 64 or "--what correctness" in printed)


@pytest.mark.parametrize("what", ["correctness", "latency"])
def test_killed_at_any_moment_it_goes_on_and_redoes_nothing_that_was_recorded(tmp_path: Path, what: str) -> None:
    change = ("2.2.1", {"passes": 0.0, "times": 2.0})
    options = (*TEN, f"--what={what}")
    wanted, _ = bisect(project(tmp_path / "whole", change), *options)

    def check(scripted: Scripted) -> None:
        record = result(scripted)
        assert steps(record) == steps(wanted) == [("2.2.0", "2.2.1")]
        if what == "correctness":  # times vary
            assert told(record) == told(wanted)
        assert made(scripted) == ENDS and not (scripted.cache / "bisecting-wheels").exists()

    check_search_survives_kills(
        random.Random(f"bisect {what}"),
        lambda number: project(tmp_path / str(number), change),
        "bisect",
        options,
        "reports/bisections/*/versions/*.json",
        kind=VersionRecord,
        rounds=4 if what == "correctness" else 2,
        kills=3,
        check=check,
    )
