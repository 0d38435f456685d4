"""The real thing: runs of the pinned environments, killed or interrupted while they build, validate and time.

At any moment made-up runs are killed, in test_resume.py, by the dozen.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema.environment_records import BINDING_OBJECT
from harness.schema.storage import Run
from harness.tools import cache_folder
from tests.conftest import ROOT
from tests.faults.world import identities, litter, wait_until
from tests.projects import SHIPPED, command, command_lines, copy_pins, head, latest, make_project, start

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

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
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell's background job ignores Ctrl-C, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def finish(self) -> Run:
        child = self.start()
        printed = child.communicate(timeout=600)[0]
        assert child.returncode == 0, printed
        return latest(self.root)

    def launched(self) -> list[Path]:
        return list((self.root / "reports" / "runs").glob("*/launches/*/*/*.json"))

    def processes(self, *words: str) -> list[str]:
        """Command lines, other than the harness's own, that name the project or what is built for it."""
        lines = [" ".join(line) for line in command_lines().values() if "harness" not in line]
        ours = [line for line in lines if str(self.root) in line or f"-{KERNEL}-cpu-" in line]
        return [line for line in ours if all(word in line for word in words)]


@pytest.fixture(scope="module", autouse=True)
def builds_removed() -> Iterator[None]:
    yield
    for folder in (cache_folder() / "builds").glob(f"*-{KERNEL}-cpu-*"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Real(tmp_path_factory.mktemp("undisturbed") / "project", f"undisturbed {uuid.uuid4().hex}").finish()


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
        "crossings": [replace(crossing, key="") for crossing in run.crossings()],
        "launches": [
            (
                x.environment,
                x.index,
                x.position,
                x.status,
                x.message,
                sorted((t.workload, t.target, t.order, t.status, t.message, t.correct) for t in x.timings),
            )
            for x in run.launches()
        ],
        "environments": [(e.id, e.status, e.message, e.observed) for e in run.environments()],
    }


def disturb_and_check(real: Real, undisturbed: Run, child: subprocess.Popen[str], how: str) -> None:
    """After the harness has ended: nothing of it runs on, nothing false is recorded, and a rerun completes."""
    # Compilers that a killed harness had started run on until the rerun begins.
    assert child.returncode == -signal.SIGKILL or wait_until(lambda: not real.processes()), (how, real.processes())
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
    assert not litter(real.root, real.root), (how, litter(real.root, real.root))


# A run that has come so far: processes and records of it now. A launch is stopped after one that was recorded.
STAGES: dict[str, Callable[[Real], bool]] = {
    "building": lambda real: bool(real.processes("cc1plus")),
    "validating": lambda real: len(real.processes("candidate-")) + len(real.processes("judge-")) >= 2,  # in threads
    "judging": lambda real: bool(real.processes("judge")),
    "timing": lambda real: bool(real.launched() and real.processes("time")),
}
STOPPED = (
    *((stage, signal.SIGINT) for stage in ("building", "validating", "timing")),
    *((stage, signal.SIGKILL) for stage in ("building", "judging", "timing")),
)


@pytest.mark.parametrize(("stage", "how"), STOPPED)
def test_a_real_run_stopped_while_it_works_leaves_no_child_and_no_false_row(
    tmp_path: Path, undisturbed: Run, stage: str, how: signal.Signals
) -> None:
    real = Real(tmp_path / "project", f"{stage} {how} {uuid.uuid4().hex}")
    child = real.start()
    found = wait_until(lambda: STAGES[stage](real) or child.poll() is not None)
    assert found and child.poll() is None, f"{stage} was not seen: {child.communicate()[0]}"
    child.send_signal(how)
    assert child.wait() == (130 if how == signal.SIGINT else -signal.SIGKILL)
    disturb_and_check(real, undisturbed, child, f"{how.name} while {stage}")


def test_a_real_environment_that_cannot_be_made_is_broken_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the index is down, then a pin's hash does not match, then all is well."""
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    wheels = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    code, printed, run = start(project, "matrix", "--launches=1")
    assert code == 30, printed
    assert [e.status for e in run.environments()] == ["broken"] and {v.status for v in run.validations()} == {"broken"}

    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_CACHE_DIR", wheels)
    pins = next(copy_pins(project).glob("torch2.5.0-pypi-*.txt"))
    good = pins.read_text()
    lines = good.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("setuptools=="))
    last = next((i for i in range(first + 1, len(lines)) if "==" in lines[i]), len(lines))
    lines[first:last] = [lines[first].split("\\")[0].split("--hash")[0] + f" --hash=sha256:{'0' * 64}"]
    pins.write_text("\n".join(lines) + "\n")
    code, printed, damaged = start(project, "matrix", "--launches=1")
    assert code == 30 and "ash" in printed, printed
    record = damaged.environments()[0]
    assert record.status == "broken" and "setuptools" in record.message, record.message

    pins.write_text(good)
    code, printed, mended = start(project, "matrix", "--launches=1")
    assert code == 0 and "nothing changed" not in printed, printed
    assert mended.folder not in (run.folder, damaged.folder)
    assert {record.status for record in [*mended.validations(), *mended.launches()]} == {"ok"}
