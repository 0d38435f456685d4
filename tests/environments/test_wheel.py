"""The wheel, in a folder that holds nothing of this repository: a matrix.yaml, and a kernel beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.schema.storage import Run
from tests.conftest import ROOT
from tests.environments.test_run import head

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

START = "import sys, kernel_matrix; sys.exit(kernel_matrix.main())"  # what the installed script does
KERNEL = """\
kernels:
  - {name: mine, sources: {cpu: [attention_of_mine.cpp]}}
workloads:
  - name: small
    shape: {batch: 1, heads: 2, seq_len: 70, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 2
    extra_trials: 1
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages, with the wheel in it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder / "dist"), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_it_brings_one_name_and_what_projects_need_not_hold(installed: Path) -> None:
    tops = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"kernel_matrix"}
    package = installed / "kernel_matrix"
    there = {path.relative_to(package).as_posix() for path in package.rglob("*")}
    assert there >= {
        "csrc/attention.h", "csrc/attention_binding.cpp", "csrc/probes/attention_call.cpp", "docker/Dockerfile",
        "docker/pins/torch2.5.0-pypi-py311.txt", "harness/worker/judge.py", "reports/render/templates/index.html.j2",
    }  # fmt: skip
    assert not any(
        part in name
        for name in there
        for part in ("csrc/specimens", "reports/records", "reports/examples", "__pycache__")
    )
    (scripts,) = installed.glob("*.dist-info/entry_points.txt")
    assert "kernel-matrix = kernel_matrix:main" in scripts.read_text()


def test_a_matrix_runs_from_it_in_a_foreign_folder(installed: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "csrc" / "attention_scalar_cpu.cpp", tmp_path / "attention_of_mine.cpp")
    (tmp_path / "matrix.yaml").write_text(head("2.1.0", "2.5.0") + KERNEL)
    for name in ("harness", "reports"):  # the project's own, which are not ours
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the project\'s own')\n")
    variables = {**os.environ, "PYTHONPATH": str(installed)}
    words = [sys.executable, "-c", START, "matrix", "--executor=venv", "--launches=1"]
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    run = Run((tmp_path / "reports" / "latest").resolve())
    assert {(record.kernel, record.status) for record in run.validations()} == {("mine", "ok")}
    assert (run.folder / "index.html").is_file()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"matrix.yaml", "attention_of_mine.cpp", "harness", "reports"}, "nothing else of ours is put there"
    recorded = "".join(path.read_text(errors="replace") for path in run.folder.rglob("*.json"))
    assert str(installed) not in recorded and "$SHIPPED/csrc" in recorded
