"""Hostile kernels in containers: limits that only a container has, as rows of a run (the limits themselves:
test_limits.py, what code is kept from: test_confinement.py), and of `tests.candidates.hostile` those that
meet the executor, by how they end, what they print and what they leave. All others meet `harness.worker` alone."""

from __future__ import annotations

import pytest

from harness.executors.process import LOG_LIMIT_BYTES
from harness.schema.storage import Run
from tests.candidates.hostile import HOSTILE, IN_SANDBOXES, Hostile, check_launch, check_validation, files_of, hostile
from tests.container.project import containers_of, docker_run
from tests.projects import head, make_project, solutions

pytestmark = [pytest.mark.container, pytest.mark.timeout(1500)]

CONTAINED: dict[str, Hostile] = {
    "hogs_memory": hostile(
        "killed",
        "killed at its memory limit of 1.5 GiB",
        "while True: kept.append(bytearray(1 << 26))",
        before="kept = []",
    ),
    "hogs_memory_when_timed": hostile(
        "ok",
        "",
        "while TIMING: kept.append(bytearray(1 << 26))\nreturn right(x)",
        before="kept = []",
        timed="killed",
        timed_said="killed at its memory limit of 1.5 GiB",
    ),
    "fills_its_folder": hostile(
        "killed",
        "killed at its output limit of 0.25 GiB",
        "with open('/out/filler', 'wb', 0) as file:\n    while True: file.write(bytes(1 << 24))",
    ),
    "runs_what_it_wrote": hostile(
        "ok",
        "",
        """
        import shutil, subprocess
        shutil.copy("/bin/true", "/out/true")
        subprocess.run(["/out/true"], check=True)
        return right(x)
        """,
        timed="ok",
    ),
}
MEET_THE_EXECUTOR = (
    "right",
    "exits",
    "exits_when_timed",
    "shouts",
    "daemon",
    "unprintable",
    "leaves_unwritten",
    "replaces_clock_below_python",
    "links",
    "links_folder",
    "pipe",
    "forges",
    "scribbles",
)
ALL = {name: HOSTILE[name] for name in MEET_THE_EXECUTOR} | CONTAINED


@pytest.fixture(scope="module")
def ran(image: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int]:
    limits = "limits: {validation_s: 60, launch_s: 60, memory_gib: 1.5, processes: 128, output_gib: 0.25}\n"
    matrix = head("2.5.0") + "kernels:\n" + solutions(ALL) + limits
    project = make_project(tmp_path_factory.mktemp("hostile") / "project", matrix, files_of(ALL))
    (code, printed, run), pid = docker_run(project, "--launches=1", "--device=cpu")
    assert code == 0, printed
    return run, pid


@pytest.mark.parametrize("name", ALL)
def test_each_is_the_row_that_it_is_without_a_container(ran: tuple[Run, int], name: str) -> None:
    validation = check_validation(ALL[name], ran[0], name, IN_SANDBOXES.get(name))
    if name == "fills_its_folder":
        assert "No space left on device" in validation.log_excerpt


@pytest.mark.parametrize("name", [name for name, case in ALL.items() if case.timed])
def test_each_launch_says_what_went_wrong_in_it(ran: tuple[Run, int], name: str) -> None:
    check_launch(ALL[name], next(x for x in ran[0].launches() if x.kernel == name))


def test_nothing_is_left_of_them(ran: tuple[Run, int]) -> None:
    run, pid = ran
    assert not containers_of(pid)
    loud = list((run.folder / "logs").rglob("candidate-shouts-*.log"))
    assert len(loud) == 1 and loud[0].stat().st_size < LOG_LIMIT_BYTES + 100
    links = [path for path in run.folder.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())]
    assert not links


def test_they_ran_where_they_should(ran: tuple[Run, int]) -> None:
    seen = ran[0].environments()[0]
    assert seen.executor == "docker" and seen.observed and seen.observed.confinement
    assert seen.observed.confinement.memory_bytes == int(1.5 * 2**30) and seen.observed.confinement.processes == 128
