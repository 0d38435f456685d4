"""kill -9 of the harness, at any moment: a rerun of the same command completes, and equals an undisturbed run."""

from __future__ import annotations

import contextlib
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
import pytest

from tests.faults.scripted import Scripted, contents

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]

KILLS = int(os.environ.get("KERNEL_MATRIX_KILLS", "32"))
SEED = int(os.environ.get("KERNEL_MATRIX_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
WORKERS = 2
AGAIN = 0.2  # of reruns are killed too
FRESH_CACHE = 0.5  # of kills meet an empty cache, so that environments and builds are made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scripted, float]:
    """A finished run, and how long it took, with `WORKERS` at once as when they are killed."""
    scripted = [Scripted(tmp_path_factory.mktemp(f"undisturbed{i}")) for i in range(2 * WORKERS)]

    def seconds(one: Scripted) -> float:
        started = time.monotonic()
        one.done()
        return time.monotonic() - started

    with ThreadPoolExecutor(WORKERS) as pool:
        took_s = min(pool.map(seconds, scripted))  # the first wait for what they are forked from
    assert contents(scripted[0].latest) == contents(scripted[1].latest), "the script is not always alike"
    return scripted[0], took_s


def check(scripted: Scripted, kept: dict[Path, tuple[int, int]], undisturbed: Scripted, how: str) -> None:
    print(how)
    scripted.finish_as(undisturbed, kept)
    assert scripted.latest.folder.parent == (scripted.root / "reports" / "runs").resolve()
    assert len(scripted.runs) == 1, scripted.runs


def wait_for_records(process: ForkServerProcess, scripted: Scripted, wanted: int) -> None:
    """Until a run has finished so many records, or all it ever will."""
    while process.is_alive() and len(scripted.kept) < wanted:
        time.sleep(0.005)


def campaign(folder: Path, kills: int, worker: int, undisturbed: Scripted, took_s: float) -> list[tuple[str, int]]:
    """Every other kill at a moment uniform over a run; the rest shortly after a number of records that goes through
    all of them, so that kills land all over a run however slow the machine is. (The last line printed, records kept)
    of each."""
    draw = random.Random(f"{SEED}-{worker}")
    whole = len(undisturbed.kept)
    landed = []
    cache = None
    for number in range(kills):
        scripted = Scripted(folder / str(number))
        if cache is not None and draw.random() >= FRESH_CACHE:
            scripted.cache = cache  # one that a killed run left, and a rerun mended
        cache = scripted.cache
        kept: dict[Path, tuple[int, int]] = {}
        records, longest_s = (number * whole // kills, took_s / whole) if number % 2 else (0, took_s)
        how = f"seed {SEED}, worker {worker}, kill {number}:"
        while True:
            moment_s = draw.uniform(0, longest_s)
            how += f" at {moment_s:.3f} s of {took_s:.3f} s, after {records} records"
            process = scripted.start()
            wait_for_records(process, scripted, records)
            process.join(moment_s)
            process.kill()
            process.join(60)
            assert process.exitcode in (-9, 0), f"{how}: {scripted.printed.read_text()}"
            now = scripted.kept
            assert {path: now.get(path) for path in kept} == kept, how
            kept = now
            lines = scripted.printed.read_text().splitlines() if scripted.printed.exists() else []
            landed.append((lines[-1] if lines else "", len(kept)))
            if draw.random() >= AGAIN:
                break
            records, longest_s = 0, took_s
        check(scripted, kept, undisturbed, how)
    return landed


def test_a_run_killed_at_random_moments_is_finished_by_a_rerun(
    tmp_path: Path, undisturbed: tuple[Scripted, float]
) -> None:
    print(f"{KILLS} kills, seed {SEED} (KERNEL_MATRIX_KILL_SEED), over {undisturbed[1]:.2f} s each")
    with ThreadPoolExecutor(WORKERS) as pool:
        share = [KILLS // WORKERS + (worker < KILLS % WORKERS) for worker in range(WORKERS)]
        jobs = [
            pool.submit(campaign, tmp_path / str(worker), kills, worker, *undisturbed)
            for worker, kills in enumerate(share)
        ]
        landed = [where for job in jobs for where in job.result()]
    assert len(landed) >= KILLS
    kept = sorted({count for _, count in landed})
    print(f"{len(landed)} kills; records kept by a kill: {kept}")
    whole = len(undisturbed[0].kept)
    where = {
        "before the first record": range(1),
        "in the first half": range(1, whole // 2 + 1),
        "in the second": range(whole // 2 + 1, whole),
    }
    missed = [name for name, counts in where.items() if not set(kept) & set(counts)]
    assert KILLS < 32 or not missed, f"no kill landed {missed}: {kept} of {whole} records"


def test_a_worker_that_was_killed_from_outside_is_run_again(
    tmp_path: Path, undisturbed: tuple[Scripted, float]
) -> None:
    """The kernel is not said to have crashed: the machine had no memory left, or someone killed it."""
    draw = random.Random(SEED)
    for number in range(6):
        scripted = Scripted(tmp_path / str(number))
        process = scripted.start()
        process.join(draw.uniform(0.2, undisturbed[1]))
        killed = ""
        while not killed and process.is_alive():
            for child in psutil.Process(process.pid).children():
                with contextlib.suppress(psutil.Error):
                    killed = " ".join(child.cmdline()[2:5])
                    child.kill()
                    break
        process.join(120)
        assert process.exitcode == 0, f"seed {SEED}, {killed}: {scripted.printed.read_text()}"
        assert contents(scripted.latest) == contents(undisturbed[0].latest), f"seed {SEED}, {killed}"


def test_a_run_killed_between_two_changes_of_the_file_system_is_finished_by_a_rerun(
    tmp_path: Path, undisturbed: tuple[Scripted, float]
) -> None:
    """The moments are counted, not timed: a rename takes microseconds, and a clock alone would hardly hit one."""
    draw = random.Random(SEED)
    total = 0
    while True:  # how many changes a run makes
        probe = Scripted(tmp_path / f"probe{total}")
        if not probe.killed(total + 200):
            break
        total += 200
    numbers = sorted(draw.sample(range(1, total + 150), max(10, KILLS // 5)))

    def one(number: int) -> bool:
        scripted = Scripted(tmp_path / str(number))
        killed = scripted.killed(number)
        check(scripted, scripted.kept, undisturbed[0], f"killed before change {number}")
        return killed

    with ThreadPoolExecutor(WORKERS) as pool:
        killed = list(pool.map(one, numbers))
    assert sum(killed) >= len(killed) / 2
