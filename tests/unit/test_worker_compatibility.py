"""`inside` runs on every Python that the pinned environments may have, without anything of ours around it."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).resolve().parents[2] / "harness" / "worker"
OLDEST, NEWEST = (3, 8), (3, 12)
ALLOWED = {"numpy", "torch"} | set(sys.stdlib_module_names)
ONLY_CHECKED = {"typing_extensions"}  # by mypy, and imported by no process


def interpreters() -> dict[str, str]:
    """Pythons of the supported versions on this machine, on the path or under pyenv."""
    found = {}
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        # pyenv puts stand-ins on the path that refuse to run a version that is not selected: its own folder first.
        places = sorted(map(str, (Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python")))
        path = next(iter(places), None) or shutil.which(f"python3.{minor}")
        if path:
            found[f"3.{minor}"] = path
    return found


@pytest.mark.parametrize("path", sorted(WORKER.glob("*.py")), ids=lambda path: path.name)
def test_only_the_standard_library_numpy_and_torch(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=OLDEST)
    branches = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for node in (inner for branch in branches for inner in branch.body):
        if isinstance(node, ast.ImportFrom) and node.module in ONLY_CHECKED:
            node.module = "typing"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            # Triton is asked for its version, where it is.
            asked = {"triton"} if path.name == "observe.py" else set()
            assert {name.name.split(".")[0] for name in node.names} <= ALLOWED | asked
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None and node.module.split(".")[0] in ALLOWED


@pytest.mark.process
@pytest.mark.parametrize("version", ["3.8", "3.12"])
def test_the_oldest_and_the_newest_python_run_it(version: str, tmp_path: Path) -> None:
    python = interpreters().get(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    shutil.copytree(WORKER, tmp_path / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    compiled = subprocess.run([python, "-m", "compileall", "-q", str(tmp_path / "worker")], env=environment)
    assert compiled.returncode == 0
    (tmp_path / "request.json").write_text('{"version": 1, "threads": 1}')
    names = [str(tmp_path / name) for name in ("request.json", "result.json")]
    done = subprocess.run(
        [python, "-m", "worker", "observe", *names], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f'"python": "{version}.' in (tmp_path / "result.json").read_text()


def worker(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    shutil.copytree(WORKER, folder / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "worker", *arguments]
    return subprocess.run(command, env={"PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True)


@pytest.mark.process
def test_an_unknown_verb_is_refused(tmp_path: Path) -> None:
    done = worker(tmp_path, "destroy", "a", "b")
    assert done.returncode == 64 and "usage" in done.stderr


@pytest.mark.process
def test_a_task_that_fails_says_so_in_its_result(tmp_path: Path) -> None:
    request = {"version": 1, "objects": [{"path": "/none.o", "sha256": "x"}], "library": "/none.so", "cuda": False}
    (tmp_path / "request.json").write_text(json.dumps(request))
    done = worker(tmp_path, "link", "request.json", "result.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["status"] == "not_run" and result["message"].startswith("none.o is not there")
