"""Mistakes whose answers take a process: through nox, of a real run, and interrupts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli.start import NOXFILE
from tests.bad_inputs.case import Case, case, faults
from tests.bad_inputs.real_cases import CPP, INDEXES, INTERRUPTS, NOX, PROBLEM, PYTHON, Faulty, Interrupt
from tests.bad_inputs.test_bad_inputs import lay_out
from tests.conftest import ROOT
from tests.projects import attempt, copy_pins

pytestmark = [pytest.mark.process, pytest.mark.slow]
HARNESS = [sys.executable, "-m", "harness"]
# As in a terminal's foreground, also where these tests run in its background.
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, however the tests were started
signal.signal(signal.SIGHUP, signal.SIG_DFL)
runpy.run_module("harness", run_name="__main__")
"""
SLOW_COMPILER = "#!/bin/sh\ntouch started\nexec sleep 60\n"
RUN = """\
environments: [{torch: "2.5.0", cuda: "12.1", python: "3.11"}]
workloads:
  - {name: small, shape: {batch: 1, heads: 2, seq_len: 70, head_dim: 64}, dtypes: {cpu: [float32]}, trials: 2}
references: [math]
timing: {warmup_s: 0.02, target_s: 0.03, min_samples: 3}
launches: 1
most_launches: 1
kernels:
"""


def printed_by(words: list[str], project: Path, variables: dict[str, str]) -> tuple[int, str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(words, cwd=project, capture_output=True, env=variables)
    return done.returncode, (done.stdout + done.stderr).decode()


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", named(NOX))
def test_through_nox(case: Case, tmp_path: Path, root: Path) -> None:
    nox = shutil.which("nox") or shutil.which("nox", path=ROOT / ".venv" / "bin")  # where the README installs it
    if nox is None:
        pytest.skip("no nox on the PATH, nor in .venv")
    lay_out(tmp_path, case, root)
    (tmp_path / "noxfile.py").write_text(NOXFILE)
    command = tmp_path / "bin" / "kernel-matrix"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(HARNESS)} "$@"\n')
    command.chmod(0o755)
    variables = {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    code, printed = printed_by([nox, *shlex.split(case.command)], tmp_path, variables)
    found = faults(case, code, printed)
    assert not found, "\n".join([*found, printed])


@pytest.mark.environments
@pytest.mark.parametrize("case", named(INDEXES))
def test_what_no_index_has(case: Case, tmp_path: Path, root: Path) -> None:
    lay_out(tmp_path, case, root)
    code, printed = printed_by([*HARNESS, *shlex.split(case.command)], tmp_path, {})
    found = faults(case, code, printed)
    assert not found, "\n".join([*found, printed])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """One run of all faulty kernels: its exit code, and what it printed."""
    project = tmp_path_factory.mktemp("faulty")
    copy_pins(project)
    small = (ROOT / "tests" / "candidates" / "small_attention.cpp").read_text()
    (project / "problem.py").write_text(PROBLEM)
    lines = []
    for each in CPP:
        (project / f"{each.name}.cpp").write_text(each.text.replace("SMALL", small))
        lines.append(f"  - {{name: {each.name}, sources: {{cpu: [{each.name}.cpp]}}}}\n")
    for each in PYTHON:
        (project / f"{each.name}.py").write_text(each.text)
        pair = f"problem: problem.py, model_new: {each.name}.py"
        lines.append(f"  - {{name: {each.name}, {pair}, devices: [cpu], trials: 2}}\n")
    (project / "matrix.yaml").write_text(RUN + "".join(lines))
    words = ["matrix", f"--matrix={project / 'matrix.yaml'}", "--no-check", "--explain=never", "--executor=venv"]
    return attempt([*HARNESS, *words, "--device=cpu"])


@pytest.mark.environments
@pytest.mark.parametrize("faulty", [pytest.param(each, id=each.name) for each in (*CPP, *PYTHON)])
def test_of_a_run(faulty: Faulty, run: tuple[int, str]) -> None:
    code, printed = run
    _, mark, rest = printed.partition(f"\n{faulty.name} (cpu): ")
    lines = rest.splitlines() or [""]
    more = next((number for number, line in enumerate(lines) if number and not line.startswith("  ")), len(lines))
    answer = "\n".join([f"{mark}{lines[0]}", *lines[1:more]])
    found = faults(case(faulty.name, "matrix", *faulty.said, code=20), code, answer)
    assert not found, "\n".join([*found, printed])


@pytest.mark.parametrize("each", [pytest.param(each, id=each.name) for each in INTERRUPTS])
def test_interrupts(each: Interrupt, tmp_path: Path, root: Path) -> None:
    wanted = case(each.name, each.command, "interrupted", "the same command", code=130)
    lay_out(tmp_path, wanted, root)
    compiler = tmp_path / "slow"
    compiler.write_text(SLOW_COMPILER)
    compiler.chmod(0o755)
    variables = {"PYTHONPATH": str(root), "CXX": str(compiler), "KERNEL_MATRIX_CACHE": str(tmp_path / "cache")}
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *shlex.split(each.command)],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    if each.after_s is not None:
        time.sleep(each.after_s)
    while each.after_s is None and not (tmp_path / "started").exists() and child.poll() is None:
        time.sleep(0.05)
    for number in each.signals:
        os.killpg(child.pid, number)
        time.sleep(0.1)
    printed, _ = child.communicate()
    found = faults(wanted, child.returncode, printed)
    assert not found, "\n".join([*found, printed])
