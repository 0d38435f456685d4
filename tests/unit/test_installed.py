"""`kernel_matrix`, as it is installed: its own `harness` and `reports`, whatever else has these names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
START = "import sys, kernel_matrix; sys.exit(kernel_matrix.main())"  # what the installed script does
OWN = "import reports.which\n\ndef start():\n    print(__file__)\n    print(reports.which.__file__)\n    return 7\n"
THEIRS = "print('the project\\'s own was imported')\n"


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("imported", [False, True])
def test_a_project_s_own_folders_of_these_names_are_not_imported(root: Path, tmp_path: Path, imported: bool) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    write(site / "kernel_matrix" / "__init__.py")
    shutil.copy(root / "harness" / "installed.py", site / "kernel_matrix" / "__init__.py")
    write(site / "kernel_matrix" / "harness" / "cli" / "main.py", OWN)
    write(site / "kernel_matrix" / "reports" / "which.py")
    for name in ("harness/__init__", "harness/cli/__init__", "harness/cli/main", "reports/__init__"):
        write(project / f"{name}.py", THEIRS)
    if imported:  # by something that every process of theirs starts with
        write(project / "sitecustomize.py", "import harness.cli.main, reports")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(project), str(site)])}
    done = subprocess.run([sys.executable, "-c", START], cwd=project, env=variables, capture_output=True, text=True)
    package = site / "kernel_matrix"
    lines = [line for line in done.stdout.splitlines() if line != THEIRS[7:-3].replace("\\", "")]
    assert lines == [str(package / "harness" / "cli" / "main.py"), str(package / "reports" / "which.py")], done.stderr
    assert (len(done.stdout.splitlines()) > 2) == imported and done.returncode == 7
