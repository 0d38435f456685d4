"""Runs of one project at once, killed or interrupted at random moments: none harms another, and a rerun completes."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from harness.run.folders import all_runs, new_run, point_latest
from harness.schema.storage import Run
from tests.faults.scripted import Scripted, contents, litter, wait_until
from tests.faults.test_kill import SEED
from tests.projects import command_lines

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

ROUNDS = 5
INTERRUPTS = 10
RUN_S = 2.0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Scripted:
    scripted = Scripted(tmp_path_factory.mktemp("undisturbed"))
    for launches in (2, 3):  # the second last: what the fewer launches share with it is compared
        scripted.done(f"--launches={launches}")
    return scripted


def start_for_an_interrupt(scripted: Scripted) -> ForkServerProcess:
    """A run that has said by what it runs."""
    process = scripted.start()
    assert wait_until(lambda: scripted.printed.exists() and "executor:" in scripted.printed.read_text())
    return process


def by_plan(scripted: Scripted) -> dict[str, object]:
    """Contents of each run, by its plan."""
    runs = all_runs(scripted.root)
    found = {run.folder.name.rpartition("-")[2]: contents(run) for run in runs}
    assert len(found) == len(runs), [run.folder for run in runs]
    return found


def processes_of(scripted: Scripted) -> list[str]:
    """Children whose program or arguments lie in the project or its cache."""
    lines = map(" ".join, command_lines().values())
    return [line for line in lines if str(scripted.cache) in line or str(scripted.root) in line]


def test_two_runs_at_once_both_killed_are_finished_by_reruns(tmp_path: Path, undisturbed: Scripted) -> None:
    """The same plan twice, and another that shares environments, builds, validations and the measuring lock."""
    draw = random.Random(SEED)
    wanted = by_plan(undisturbed)
    for number in range(ROUNDS):
        how = f"seed {SEED}, round {number}"
        print(how)
        scripted = Scripted(tmp_path / str(number))
        started = time.monotonic()
        running = [
            scripted.start(f"--launches={launches}", printed=tmp_path / f"{number}-{i}")
            for i, launches in enumerate((3, 3, 2))
        ]
        moments = sorted((started + draw.uniform(0, 3 * RUN_S), draw.random(), process) for process in running)
        for moment, _, process in moments:
            process.join(max(0, moment - time.monotonic()))
            process.kill()
        for process in running:
            process.join(60)
            assert process.exitcode in (-9, 0), how
        kept = scripted.kept
        again = [
            scripted.start(f"--launches={launches}", printed=tmp_path / f"{number}-{i}")
            for i, launches in enumerate((2, 3, 3))
        ]
        for i, process in enumerate(again):
            process.join(120)
            assert process.exitcode == 0, f"{how}: {(tmp_path / f'{number}-{i}').read_text()}"
        assert by_plan(scripted) == wanted, how
        now = scripted.kept
        assert {path: now.get(path) for path in kept} == kept, how
        left = [name for name in litter(scripted.root) if not name.endswith((".request.json", ".result.json"))]
        assert not left, f"{how}: {left}"
        assert (scripted.root / "reports" / "latest" / "run.json").is_file()


def test_reports_latest_is_moved_by_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "locks").mkdir(parents=True)
    made = [new_run(tmp_path, digit * 12) for digit in "0123"]
    with ThreadPoolExecutor(len(made)) as pool:
        jobs = [pool.submit(point_latest, tmp_path, run) for run in made * 25]
        for job in jobs:
            job.result()
    assert (tmp_path / "reports" / "latest").resolve() in [run.folder for run in made]
    assert not list((tmp_path / "reports").glob(".*"))


def test_an_interrupt_at_any_moment_ends_all_at_once_and_records_nothing_false(
    tmp_path: Path, undisturbed: Scripted
) -> None:
    draw = random.Random(SEED)
    wanted = contents(undisturbed.latest)
    whole = start_for_an_interrupt(Scripted(tmp_path / "whole"))
    started = time.monotonic()
    whole.join(120)
    took_s = time.monotonic() - started
    codes = []
    for number in range(INTERRUPTS):
        scripted = Scripted(tmp_path / str(number))
        process = start_for_an_interrupt(scripted)
        moment_s = draw.uniform(number, number + 1) / INTERRUPTS * took_s
        how = f"seed {SEED}, interrupt {number} at {moment_s:.3f} s of {took_s:.3f} s"
        print(how)
        process.join(moment_s)
        assert process.pid is not None
        if process.exitcode is None:
            os.kill(process.pid, (signal.SIGINT, signal.SIGTERM)[number % 2])
        process.join(30)
        assert process.exitcode in (0, 130), f"{how}: {process.exitcode} {scripted.printed.read_text()}"
        codes.append(process.exitcode)
        assert wait_until(lambda at=scripted: not processes_of(at)), (how, processes_of(scripted))
        printed = scripted.printed.read_text()
        assert "Traceback" not in printed, printed
        assert not litter(scripted.root), (how, litter(scripted.root))
        for folder in scripted.runs:
            if (folder / "run.json").exists():
                found = contents(Run(folder))
                assert {name: wanted[name] for name in found} == found, how
        scripted.finish_as(undisturbed)
    assert codes.count(130) >= INTERRUPTS / 2, codes
