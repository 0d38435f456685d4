"""Ctrl-C and kill -9 of the harness: no container stays, and the same command goes on from there."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.container.engines import until
from tests.container.project import begin, containers_of, docker_run, launches, make_small_project, now_in, printed

pytestmark = [pytest.mark.container, pytest.mark.timeout(600)]

MOMENTS: dict[str, Callable[[Path], bool]] = {
    "validation": lambda project: now_in(project, "candidate"),
    "launch": lambda project: bool(launches(project)) and now_in(project, "launch"),
}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_and_nothing_is_lost(image: str, tmp_path: Path, how: signal.Signals, moment: str) -> None:
    project = make_small_project(tmp_path / "project")
    child = begin(project, "--launches=2")
    until(lambda: MOMENTS[moment](project), moment, timeout_s=300)
    assert containers_of(child.pid), "something runs that could be left"
    child.send_signal(how)
    assert child.wait(60) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    until(lambda: not containers_of(child.pid), "no container left", timeout_s=60)
    said = printed(project)
    assert "Traceback" not in said and (how == signal.SIGKILL or "interrupted; the same command goes on" in said), said
    kept = launches(project)
    assert len(kept) == (1 if moment == "launch" else 0)

    (code, said, run), pid = docker_run(project, "--launches=2")
    assert code == 0, said
    assert [launch.status for launch in run.launches()] == ["ok", "ok"]
    assert [validation.status for validation in run.validations()] == ["ok"]
    assert launches(project).items() >= kept.items(), "a finished launch was done again"
    assert not containers_of(pid) and not (run.folder / "scratch").exists()
