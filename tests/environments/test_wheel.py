"""The wheel, in a folder that holds nothing of this repository: a matrix.yaml, and a kernel beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.tools import uv_command
from tests.conftest import ROOT
from tests.projects import WORKLOADS, attempt, check_measured, head, latest

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

KERNEL = """\
kernels:
  - {name: mine, sources: {cpu: [attention_of_mine.cpp]}}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, which is built from the sdist, as `pip install` of that would."""
    folder = tmp_path_factory.mktemp("wheel")
    dist, python = folder / "dist", folder / "venv" / "bin" / "python"
    code, printed = attempt([sys.executable, "-m", "build", "--installer=uv", f"--outdir={dist}", str(ROOT)])
    assert code == 0, printed[-4000:]
    assert {path.suffix for path in dist.iterdir()} == {".whl", ".gz"}
    for words in (["venv", folder / "venv"], ["pip", "install", f"--python={python}", *dist.glob("*.whl")]):
        code, printed = attempt([*uv_command(), *words])
        assert code == 0, printed
    return folder / "venv"


def test_it_brings_one_name_and_what_projects_need_not_hold(installed: Path) -> None:
    (package,) = installed.glob("lib/python3*/site-packages/kernel_matrix")
    assert not [name for name in ("harness", "reports", "csrc", "docker/pins") if (package.parent / name).exists()]
    there = {path.relative_to(package).as_posix() for path in package.rglob("*")}
    assert there >= {
        "csrc/attention.h",
        "csrc/attention_binding.cpp",
        "csrc/probes/attention_call.cpp",
        "docker/Dockerfile",
        "docker/pins/torch2.5.0-pypi-py311.txt",
        "harness/worker/judge.py",
        "reports/render/templates/index.html.j2",
    }
    assert not any(part in name for name in there for part in ("fault_cases", "reports/records", "__pycache__"))


def test_a_matrix_runs_from_it_in_a_foreign_folder(installed: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "csrc" / "attention_scalar_cpu.cpp", tmp_path / "attention_of_mine.cpp")
    (tmp_path / "matrix.yaml").write_text(head("2.1.0", "2.5.0") + KERNEL + WORKLOADS)
    for name in ("harness", "reports"):  # the project's own, which are not ours
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the project's own')\n")
    words = [installed / "bin" / "kernel-matrix", "matrix", "--executor=venv", "--launches=1"]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    run = latest(tmp_path)
    check_measured(run, launches=2)
    assert {record.kernel for record in run.validations()} == {"mine"}
    assert (run.folder / "index.html").is_file()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"matrix.yaml", "attention_of_mine.cpp", "harness", "reports"}, "nothing else of ours is put there"
    recorded = "".join(path.read_text(errors="replace") for path in run.folder.rglob("*.json"))
    assert str(installed) not in recorded and "$SHIPPED/csrc" in recorded
