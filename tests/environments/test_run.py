"""Whole runs in the real pinned environments: launches, and `eval`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import SHIPPED, Finished, files, head, make_project, report, start

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (head("2.1.0", "2.5.0") + SHIPPED).replace("most_launches: 2", "most_launches: 5")
    return make_project(tmp_path_factory.mktemp("run") / "project", text)


@pytest.fixture(scope="module")
def finished(project: Path) -> Finished:
    return start(project, "matrix")


def test_a_run_goes_on_in_whole_blocks_up_to_its_limit_and_then_stays_ended(project: Path, finished: Finished) -> None:
    """How far depends on how this machine's launches spread."""
    code, printed, run = finished
    assert code == 0 and "launches: 2, while rows stay undecided up to 5 of each" in printed, printed
    first, second = (
        sorted(x.index for x in run.launches() if x.environment == name) for name in run.load().environments
    )
    assert first == second == list(range(len(first))) and len(first) in (2, 4, 5), printed
    assert ("launches more, up to 5" in printed) == (len(first) > 2)
    assert (run.load().launches, run.load().most_launches) == (2, 5)
    before = files(run)
    again = start(project, "matrix")
    assert "nothing changed" in again.printed and again.run.folder == run.folder and files(again.run) == before


def test_eval_measures_one_version_against_the_stored_baseline(project: Path, finished: Finished) -> None:
    code, printed, run = start(project, "eval", "--torch=2.5.0", "--launches=1")
    assert code == 0, printed
    assert run.load().mode == "eval"
    assert {launch.environment for launch in run.launches()} == {run.load().environments[1]}
    assert {v.status for v in run.validations()} == {"ok"} and len(run.validations()) == 2
    assert report(run)[0] == 0
    assert "undecided" in (run.folder / "summary.md").read_text()
