"""`torch: host` beside a pinned version, in a whole run. The host's PyTorch is one of the pinned environments, named
by its interpreter, so that what must agree is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.executors.bwrap import grant
from harness.executors.host import PYTHON_VARIABLE
from harness.schema.storage import Run
from tests.projects import SHIPPED, Finished, head, make_project, outputs, report
from tests.projects import start as start_run

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

WITH_HOST = head("2.5.0").replace("packages:", "  - {torch: host}\npackages:").replace("launches: 2", "launches: 1")
WITH_HOST += SHIPPED


def start(project: Path, verb: str, *arguments: str, host: str | Path) -> Finished:
    return start_run(project, verb, *arguments, variables={PYTHON_VARIABLE: str(host)})


@pytest.fixture(scope="module")
def python(pinned_pythons: list[Path]) -> Path:
    return next(path for path in pinned_pythons if "torch2.5.0" in str(path))


@pytest.fixture(scope="module")
def finished(python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Run]:
    project = make_project(tmp_path_factory.mktemp("host") / "project", WITH_HOST)
    code, printed, run = start(project, "matrix", host=python)
    assert code == 0, printed
    return project, printed, run


def test_it_is_a_column_of_its_own_with_what_was_observed(finished: tuple[Path, str, Run]) -> None:
    _, printed, run = finished
    records = {record.id: record for record in run.environments()}
    host = records["host"]
    assert (host.status, host.executor, host.torch, host.pins) == ("ok", "host", "2.5.0", {}), printed
    bwrap, refusal = grant()
    assert run.load().sandboxed is (bwrap is not None)
    assert (bwrap.describe() if bwrap else refusal) in run.load().executor_reason, "the page says so"
    assert host.observed and host.observed.torch.startswith("2.5.0")
    assert not [item for item in run.load().fallbacks if item.subject == "host"]
    assert {launch.environment for launch in run.launches()} == set(records)
    assert {record.status for record in [*run.builds(), *run.validations(), *run.launches()]} == {"ok"}


def test_the_same_wheels_give_the_same_bits(finished: tuple[Path, str, Run]) -> None:
    seen: dict[str, list[list[str]]] = {}
    for (environment, _, _), digests in outputs(finished[2]).items():
        seen.setdefault(environment, []).append(digests)
    host, pinned = seen.values()
    assert host == pinned


def test_nothing_was_installed_or_written_there(finished: tuple[Path, str, Run], python: Path) -> None:
    lists = python.parent.parent.glob("lib/python3*/site-packages/*.dist-info")
    began = finished[2].run_path().stat().st_mtime
    assert [path for path in lists if path.stat().st_mtime > began] == []


def test_the_report_names_it_and_gives_its_command(finished: tuple[Path, str, Run]) -> None:
    code, printed = report(finished[2])
    assert code == 0, printed
    page = (finished[2].folder / "index.html").read_text()
    assert "kernel-matrix eval --torch host" in page, "as this run was typed"
    assert "<b>PyTorch 2.5.0" in page


def test_eval_measures_it_against_the_stored_baseline(finished: tuple[Path, str, Run], python: Path) -> None:
    code, printed, run = start(finished[0], "eval", "--torch=host", host=python)
    assert code == 0, printed
    assert {launch.environment for launch in run.launches()} == {"host"}


def test_an_unchanged_one_is_not_measured_again(finished: tuple[Path, str, Run], python: Path) -> None:
    code, printed, run = start(finished[0], "matrix", host=python)
    assert code == 0 and "nothing changed" in printed and run.folder == finished[2].folder


def test_a_named_python_without_torch_is_refused_before_anything_runs(finished: tuple[Path, str, Run]) -> None:
    before = sorted(path.name for path in finished[2].folder.parent.iterdir())
    code, printed, _ = start(finished[0], "matrix", "--launches=2", host="/usr/bin/true")
    assert code == 30 and f"torch: host: {PYTHON_VARIABLE}: /usr/bin/true does not run as a Python" in printed
    assert sorted(path.name for path in finished[2].folder.parent.iterdir()) == before
