"""A clock that jumps: runs are found again, the newest is the newest, durations and limits do not follow it."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.run import folders
from harness.run.folders import all_runs, find_run, new_run
from tests.faults.scripted import BROKEN, ROOT, Scripted, contents

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

DIGEST = "0123456789abcdef"
DAY_S = 86400
YEAR_S = 365 * DAY_S


class Clock(datetime.datetime):
    offset_s = 0

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return datetime.datetime.now(tz) + datetime.timedelta(seconds=cls.offset_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(folders, "datetime", SimpleNamespace(datetime=Clock, timezone=datetime.timezone))
    monkeypatch.setattr(Clock, "offset_s", 0)
    return Clock


@pytest.mark.parametrize("jumps", [(0, -DAY_S, -2 * DAY_S), (YEAR_S, 0, 0, 0), (0,) * 13, (0, YEAR_S, -DAY_S, 0)])
def test_the_newest_run_is_the_one_that_was_made_last(
    tmp_path: Path, clock: type[Clock], jumps: tuple[int, ...]
) -> None:
    for number, offset_s in enumerate(jumps):
        clock.offset_s = offset_s
        run = new_run(tmp_path, DIGEST)
        (run.folder / "run.json").write_text("{}")
        found = find_run(tmp_path, DIGEST)
        assert found is not None and found.folder == run.folder, f"run {number}"
        assert len(all_runs(tmp_path)) == number + 1


def test_a_folder_without_a_run_in_it_is_removed_and_one_with_anything_else_is_kept(tmp_path: Path) -> None:
    lost = new_run(tmp_path, DIGEST).folder
    (lost / "launches").mkdir()
    killed = new_run(tmp_path, DIGEST).folder
    (killed / ".abc.part").write_text("{")
    assert killed != lost
    new_run(tmp_path, "f" + DIGEST)
    assert killed.exists(), "another plan's"
    new_run(tmp_path, DIGEST)
    assert not list(killed.glob(".*")) and (lost / "launches").is_dir()


# libfaketime moves sleeping and the monotonic clock along; a clock that is set moves neither.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long offset_s(void) {
    char text[32] = "0";
    int file = open(getenv("WALL_CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
    if (file >= 0) { ssize_t size = read(file, text, 31); text[size > 0 ? size : 0] = 0; close(file); }
    return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, clock, now);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
    return code;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec; out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "clock.c").write_text(SHIM)
    library = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, folder / "clock.c"], check=True)
    return library


class Elsewhen:
    """Runs of a project whose harness sees another wall clock, which `set` moves while it runs."""

    def __init__(self, shim: Path, scripted: Scripted) -> None:
        self.scripted, self.shim = scripted, shim
        self.offset = scripted.root.parent / "offset"

    def set(self, offset_s: int) -> None:
        self.offset.write_text(str(offset_s))

    def start(self, offset_s: int, *arguments: str) -> subprocess.Popen[str]:
        self.set(offset_s)
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.faults.scripted",
                "matrix",
                f"--matrix={self.scripted.root / 'matrix.yaml'}",
                "--executor=venv",
                *arguments,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "KERNEL_MATRIX_CACHE": str(self.scripted.cache),
                "LD_PRELOAD": str(self.shim),
                "WALL_CLOCK_OFFSET": str(self.offset),
            },
        )

    def done(self, offset_s: int, *arguments: str, code: int = 0) -> str:
        """What a run printed that ends with this exit code."""
        child = self.start(offset_s, *arguments)
        printed = child.communicate()[0]
        assert child.returncode == code, printed
        return printed


@pytest.fixture
def elsewhen(shim: Path, tmp_path: Path) -> Elsewhen:
    return Elsewhen(shim, Scripted(tmp_path / "scripted"))


def durations(scripted: Scripted) -> list[float]:
    run = scripted.latest
    prepared = [e.prepared_s for e in run.environments() if e.prepared_s is not None]
    return [*prepared, *(r.duration_s for r in [*run.validations(), *run.launches()])]


@pytest.mark.parametrize("jump_s", [-DAY_S, YEAR_S])
def test_an_unfinished_run_is_finished_after_a_jump(undisturbed: Scripted, elsewhen: Elsewhen, jump_s: int) -> None:
    scripted = elsewhen.scripted
    assert scripted.killed(500) and len(scripted.runs) == 1
    elsewhen.done(jump_s)
    assert len(scripted.runs) == 1
    assert contents(scripted.latest) == contents(undisturbed.latest)
    assert all(0 <= duration_s < DAY_S / 2 for duration_s in durations(scripted)), durations(scripted)
    for offset_s in (0, -2 * DAY_S, YEAR_S + DAY_S):
        assert "nothing changed" in elsewhen.done(offset_s), offset_s


def test_a_clock_that_jumps_while_a_run_goes_on_moves_no_duration_and_no_limit(elsewhen: Elsewhen) -> None:
    child = elsewhen.start(0, "--launches=6")
    assert child.stdout is not None
    printed = ""
    for number, line in enumerate(child.stdout):
        printed += line
        elsewhen.set((0, -DAY_S, YEAR_S, -400 * DAY_S)[number % 4])
    assert child.wait() == 0, printed
    scripted = elsewhen.scripted
    years = {launch.started_utc[:4] for launch in scripted.latest.launches()}
    assert len(years) > 1, f"the clock did not jump: {years}"
    assert all(0 <= duration_s < DAY_S / 2 for duration_s in durations(scripted)), durations(scripted)
    assert {launch.status for launch in scripted.latest.launches()} == {"ok"}
    assert len(scripted.latest.launches()) == 12


def test_two_runs_at_once_wait_for_each_other_whatever_the_clock_does(elsewhen: Elsewhen) -> None:
    children = [elsewhen.start(0), elsewhen.start(0)]
    for offset_s in (-DAY_S, YEAR_S, 0) * 10:
        elsewhen.set(offset_s)
        time.sleep(0.05)
    printed = [child.communicate()[0] for child in children]
    assert [child.returncode for child in children] == [0, 0], printed
    assert len(elsewhen.scripted.runs) == 1 and "another process" in "".join(printed)


def test_a_mended_run_is_found_after_the_clock_went_back(elsewhen: Elsewhen) -> None:
    """The broken run has the later stamp: it must not be taken for the newest, and measured again each time."""
    scripted = elsewhen.scripted
    (scripted.root / BROKEN).write_text("2.5.0")
    elsewhen.done(YEAR_S, code=30)
    (scripted.root / BROKEN).unlink()
    assert "nothing changed" not in elsewhen.done(-DAY_S)
    assert "nothing changed" in elsewhen.done(0)
    printed = elsewhen.done(-2 * DAY_S, "--fresh")
    assert "launch 1/3" in printed and "validate torch" in printed and "validation unchanged" not in printed, printed
    fresh = scripted.latest.folder
    assert "nothing changed" in elsewhen.done(0) and scripted.latest.folder == fresh


def test_answers_of_an_index_from_the_future_are_not_believed(elsewhen: Elsewhen) -> None:
    elsewhen.done(YEAR_S, "--list")
    probes = elsewhen.scripted.cache / "probes.json"
    answers = json.loads(probes.read_text())
    index = next(iter(answers))
    answers[index][0] = "cannot be reached"  # what an old answer says
    probes.write_text(json.dumps(answers))
    assert "fallback" in elsewhen.done(YEAR_S, "--list"), "the answer was to be remembered"
    probes.write_text(json.dumps(answers))
    assert "fallback" not in elsewhen.done(0, "--list")
