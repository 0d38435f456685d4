"""The real thing: runs of the pinned environments, killed or interrupted while they build, validate and time."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.records import BINDING_OBJECT
from harness.storage import Run
from harness.tools import cache_folder
from tests.environments.test_run import command, head, make_project
from tests.faults.scripted import ROOT, identities, litter
from tests.faults.test_at_once import wait_until
from tests.faults.test_kill import SEED

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

KILLS = 5
SOURCE = "csrc/attention_scalar_cpu.cpp"
KERNEL = "disturbed"
MATRIX = f"""\
kernels:
  - name: {KERNEL}
    sources: {{cpu: [{SOURCE}]}}
workloads:
  - name: small
    shape: {{batch: 1, heads: 2, seq_len: 70, head_dim: 64}}
    dtypes: {{cpu: [float32, float16]}}
    trials: 2
    extra_trials: 1
  - name: longer
    shape: {{batch: 1, heads: 2, seq_len: 500, head_dim: 64}}
    dtypes: {{cpu: [float32]}}
    trials: 20
    extra_trials: 1
"""


class Real:
    """A project whose kernel has never been built: its source ends with a line of its own."""

    def __init__(self, folder: Path, line: str) -> None:
        self.root = make_project(folder, head("2.5.0") + MATRIX)
        source = self.root / SOURCE
        source.write_text(f"{source.read_text()}// {line}\n")

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(self.root, "matrix", "--executor=venv", "--device=cpu"),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            # A shell's background job ignores Ctrl-C, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def finish(self) -> Run:
        child = self.start()
        printed = child.communicate(timeout=600)[0]
        assert child.returncode == 0, printed
        return Run((self.root / "reports" / "latest").resolve())

    def processes(self, *words: str) -> list[str]:
        """Command lines, other than the harness's own, that name the project or what is built for it."""
        found = []
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            text = " ".join(line)
            if (str(self.root) in text or f"-{KERNEL}-cpu-" in text) and "harness" not in line:
                found += [text] if all(word in text for word in words) else []
        return found


@pytest.fixture(scope="module", autouse=True)
def builds_removed() -> Iterator[None]:
    yield
    for folder in (cache_folder() / "builds").glob(f"*-{KERNEL}-cpu-*"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, float]:
    real = Real(tmp_path_factory.mktemp("undisturbed") / "project", f"undisturbed {SEED}")
    started = time.monotonic()
    return real.finish(), time.monotonic() - started


def measured(run: Run) -> dict[str, Any]:
    """What does not depend on the moment, nor on where the project lies."""
    return {
        "builds": [
            (b.environment, b.status, b.flags, {k: v for k, v in b.objects.items() if k != BINDING_OBJECT})
            for b in run.builds()
        ],
        "validations": [
            (v.environment, v.workload, v.status, v.message, v.recipes, v.arrays) for v in run.validations()
        ],
        "crossings": run.crossings(),
        "launches": [
            (x.environment, x.index, x.position, x.status, x.message,
             sorted((t.workload, t.target, t.order, t.status, t.message, t.correct) for t in x.timings))
            for x in run.launches()
        ],
        "environments": [(e.id, e.status, e.message, e.observed) for e in run.environments()],
    }  # fmt: skip


def disturb_and_check(real: Real, undisturbed: Run, child: subprocess.Popen[str], how: str) -> None:
    """After the harness has ended: nothing of it runs on, nothing false is recorded, and a rerun completes."""
    # Compilers that a killed harness had started run on until the rerun begins.
    assert child.returncode == -signal.SIGKILL or wait_until(lambda: not real.processes(), 3), (how, real.processes())
    runs = real.root / "reports" / "runs"
    kept = identities(runs)
    for folder in runs.glob("*"):
        run = Run(folder)
        rows = [*run.environments(), *run.builds(), *run.validations(), *run.launches()]
        assert {row.status for row in rows} <= {"ok"}, (how, [row for row in rows if row.status != "ok"])
    run = real.finish()
    now = identities(runs)
    assert {path: now.get(path) for path in kept} == kept, how
    assert measured(run) == measured(undisturbed), how
    assert not litter(real.root), (how, litter(real.root))


def test_a_real_run_killed_at_random_moments_is_finished_by_a_rerun(
    tmp_path: Path, undisturbed: tuple[Run, float]
) -> None:
    draw = random.Random(SEED)
    run, took_s = undisturbed
    for number in range(KILLS):
        real = Real(tmp_path / str(number), f"kill {number} {SEED}")
        moment_s = draw.uniform(number, number + 1) * took_s / KILLS
        child = real.start()
        try:
            child.communicate(timeout=moment_s)
        except subprocess.TimeoutExpired:
            child.kill()
        child.wait(10)
        disturb_and_check(real, run, child, f"seed {SEED}, killed at {moment_s:.1f} s of {took_s:.1f} s")


# How Ctrl-C finds a run: a word of the command lines that run then, and how many.
STAGES = {"building": ("cc1plus", 1), "validating": ("inside", 2), "judging": ("judge", 1), "timing": ("time", 1)}


@pytest.mark.parametrize(
    ("stage", "how"), [*((stage, signal.SIGINT) for stage in STAGES), ("building", signal.SIGKILL)]
)
def test_a_real_run_stopped_while_it_works_leaves_no_child_and_no_false_row(
    tmp_path: Path, undisturbed: tuple[Run, float], stage: str, how: signal.Signals
) -> None:
    real = Real(tmp_path / "project", f"{stage} {how} {SEED}")
    word, count = STAGES[stage]
    child = real.start()
    if stage == "validating":  # side by side, in threads, and no build any more
        found = wait_until(lambda: len(real.processes("candidate-")) + len(real.processes("judge-")) >= count, 300)
    else:
        found = wait_until(lambda: len(real.processes(word)) >= count or child.poll() is not None, 300)
    assert found and child.poll() is None, f"{stage} was not seen: {child.communicate()[0]}"
    child.send_signal(how)
    started = time.monotonic()
    assert child.wait(10) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert time.monotonic() - started < 5
    disturb_and_check(real, undisturbed[0], child, f"{how.name} while {stage}")
