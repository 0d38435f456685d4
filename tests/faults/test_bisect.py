"""`bisect` as a whole, with scripted versions: the answer, what it costs, what it leaves, and kill -9 at any moment."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.schema.bisection_records import BisectionRecord, ProbeVerdict
from harness.schema.storage import load_record
from reports.render.bisection import find_next_command, render_page, render_summary_text
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


def project(folder: Path, *changes: tuple[str, dict[str, float]], versions: Sequence[str] = RELEASES) -> Scripted:
    """A project whose versions behave as told from the named version on."""
    scripted = Scripted(folder, versions)
    told: dict[str, dict[str, float]] = {}
    current: dict[str, float] = {"passes": 1.0, "times": 1.0, "builds": True}
    for version in versions:
        current = current | dict(changes).get(version, {})
        told[version] = current
    (scripted.root / STORY).write_text(json.dumps(told))
    return scripted


def bisect(scripted: Scripted, *options: str, code: int = 0) -> tuple[BisectionRecord, str]:
    """(the record, what was printed) of a bisection that ends with this code."""
    printed = scripted.done(*(options or TEN), verb="bisect", code=code)
    [folder] = (scripted.root / "reports" / "bisections").glob("*")
    return load_record(folder / "bisection.json", BisectionRecord), printed


def steps(record: BisectionRecord) -> list[tuple[str, str]]:
    return [(step.before, step.after) for step in record.steps]


def made(scripted: Scripted) -> list[str]:
    return sorted(path.name.split("-")[0] for path in (scripted.cache / "environments").iterdir())


def test_one_step_is_found_within_the_bound_and_only_the_ends_are_left(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    record, printed = bisect(scripted)
    assert steps(record) == [("2.2.2", "2.3.0")] and record.monotonic
    assert len(record.probes) <= record.most_environments == 6
    assert "The correctness of kernel changed at 2.3.0, the one after 2.2.2" in printed
    assert "skipped: 2.3.2: no wheel for Python 3.11" in printed and "2.2.9" not in printed and "rc1" not in printed
    assert made(scripted) == ENDS
    assert not (scripted.root / "reports" / "latest").exists(), "a step of a bisection is not the latest report"
    # What the answer names next can be done.
    assert (scripted.root / find_next_command(record).rpartition(" ")[2] / "run.json").is_file()
    # The same command again asks nobody and redoes nothing.
    before = scripted.kept
    _, printed = bisect(scripted)
    assert "nothing changed" in printed and "made and proven" not in printed
    assert scripted.kept == before and made(scripted) == ENDS


def test_a_bisection_by_date_tells_the_commits_between_the_two_wheels(tmp_path: Path) -> None:
    first, last = NIGHTLIES[0], NIGHTLIES[-1]
    scripted = project(tmp_path, (NIGHTLIES[3], {"passes": 0.0}), versions=NIGHTLIES)
    record, printed = bisect(scripted, f"--good={first}", f"--bad={last}", "--workload=first", "--trials=10")
    assert steps(record) == [(NIGHTLIES[2], NIGHTLIES[3])] and "6 nightlies" in printed
    assert [release.version for release in record.question.releases] == list(NIGHTLIES)
    commits = f"https://github.com/pytorch/pytorch/compare/{commit_of(NIGHTLIES[2])}...{commit_of(NIGHTLIES[3])}"
    assert f'href="{commits}"' in render_page(record) and commits in render_summary_text(record)


@pytest.mark.parametrize(
    ("options", "left"),
    [((*TEN, "--keep"), None), (("--good=2.1.1", "--bad=2.4.1", "--workload=first", "--trials=10"), 0)],
    ids=["kept where asked for", "an end that the matrix does not name"],
)
def test_environments_are_removed_but_for_those_of_the_matrix(
    tmp_path: Path, options: tuple[str, ...], left: int | None
) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    record, _ = bisect(scripted, *options)
    assert steps(record) == [("2.2.2", "2.3.0")]
    assert len(made(scripted)) == (len(record.probes) if left is None else left)


def test_what_comes_back_is_said_and_every_release_is_tried_where_asked_for(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.1.2", {"passes": 0.0}), ("2.3.0", {"passes": 1.0}), ("2.4.1", {"passes": 0.0}))
    record, printed = bisect(scripted, *OPTIONS, "--trials=10", "--every")
    assert steps(record) == [("2.1.1", "2.1.2"), ("2.2.2", "2.3.0"), ("2.4.0", "2.4.1")]
    assert not record.monotonic and "not monotonic" in printed
    assert len(record.probes) == len(RELEASES)


def test_a_version_that_cannot_be_made_is_skipped_with_its_reason(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    (scripted.root / BROKEN).write_text("2.2.2 2.3.0")
    record, printed = bisect(scripted)
    [step] = record.steps
    assert (step.before, step.after, step.unknown) == ("2.2.1", "2.3.1", ["2.2.2", "2.3.0"])
    assert "after 2.2.1 and not later than 2.3.1" in printed
    skipped = next(probe for probe in record.probes if probe.version == "2.2.2")
    assert skipped.verdict is ProbeVerdict.SKIPPED and "the index cannot be reached" in skipped.reason
    assert made(scripted) == ENDS, "half an environment is left behind"


@pytest.mark.parametrize("bad_builds", [True, False])
def test_a_build_that_fails_is_a_step_only_where_an_end_has_it(tmp_path: Path, bad_builds: bool) -> None:
    fails = {"builds": False, "passes": 0.0}
    after = [] if not bad_builds else [("2.3.1", {"builds": True})]
    scripted = project(tmp_path, ("2.3.0", fails), *after)
    record, printed = bisect(scripted)
    assert steps(record) == ([("2.2.2", "2.3.1")] if bad_builds else [("2.2.2", "2.3.0")])
    assert ("the build fails: " in printed) == bad_builds


def test_an_end_that_cannot_be_made_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.3.0", {"passes": 0.0}))
    (scripted.root / BROKEN).write_text("2.5.0")
    assert "the same command then goes on from here" in scripted.done(*TEN, verb="bisect", code=30)
    (scripted.root / BROKEN).unlink()
    assert steps(bisect(scripted)[0]) == [("2.2.2", "2.3.0")]


def test_ends_that_do_not_differ_say_so_and_name_the_other_question(tmp_path: Path) -> None:
    record, printed = bisect(project(tmp_path))
    assert not record.steps and len(record.probes) == 2
    assert "No difference in correctness of kernel between 2.1.0 and 2.5.0 was found" in printed
    assert find_next_command(record).endswith("--what latency")


def test_a_version_that_cannot_be_decided_is_inconclusive_and_strict_says_it_by_its_code(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.1.1", {"passes": 0.9}), ("2.5.0", {"passes": 0.6}))
    record, printed = bisect(scripted, *TEN, "--strict", code=40)
    assert {probe.verdict for probe in record.probes} >= {ProbeVerdict.GOOD, ProbeVerdict.INCONCLUSIVE}
    assert record.probes[1].looks == 3 and "could not be told" in printed


def test_latency_is_bisected_with_the_fewest_replicates_that_decide(tmp_path: Path) -> None:
    scripted = project(tmp_path, ("2.4.0", {"times": 2.0}))
    record, printed = bisect(scripted, *OPTIONS, "--what=latency", "--target=math")
    assert steps(record) == [("2.3.1", "2.4.0")] and "first-fp32/cpu: " in printed
    assert all(probe.cells[0].replicates == 5 and probe.looks == 1 for probe in record.probes)


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

    def check(scripted: Scripted) -> None:
        record, _ = bisect(scripted, *TEN, f"--what={what}")
        assert steps(record) == [("2.2.0", "2.2.1")]
        assert made(scripted) == ENDS and not (scripted.cache / "bisecting-wheels").exists()

    check_search_survives_kills(
        random.Random(f"bisect {what}"),
        lambda number: project(tmp_path / str(number), change),
        "bisect",
        (*TEN, f"--what={what}"),
        rounds=4 if what == "correctness" else 2,
        kills=3,
        check=check,
    )
