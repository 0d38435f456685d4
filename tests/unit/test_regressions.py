"""`examples/regressions`: what each folder says can be checked and planned, is short, and names its report first."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.cli import main
from harness.config import indexes
from harness.config.interpreters import Interpreter
from harness.config.matrix import parse_matrix
from harness.errors import DONE
from harness.executors.host import HostPython
from harness.preflight import Findings, preflight
from harness.run import machine
from tests.conftest import ROOT

FOLDERS = sorted(path.parent for path in (ROOT / "examples" / "regressions").glob("*/matrix.yaml"))
PREBUILT = "152790-cxx11-abi"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No connection, GPU or nvcc, and the cache in a temporary folder."""
    for name in ("check_packages", "check_interpreters"):  # which ask an index, and uv
        monkeypatch.setattr(preflight, name, lambda *given: Findings())
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(indexes, "probe_index", lambda index: "")
    monkeypatch.setattr(machine, "gpus", lambda: ())
    monkeypatch.setattr(machine, "host_facts", lambda: {"cpu": "test"})
    host = HostPython(path="/usr/bin/python3", version="3.12.3", torch="2.11.0", user_base="", key="k" * 12)
    monkeypatch.setattr(preflight, "find_host_python", lambda worker: host)
    monkeypatch.setattr(machine, "host_identity", lambda cache: str(host))
    python = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=True)
    monkeypatch.setattr(machine, "find_interpreter", lambda version: python)


def checked_and_planned(matrix: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.main(["check", f"--matrix={matrix}"]) == DONE, capsys.readouterr().err
    asked = parse_matrix(matrix.read_text())
    device = "cpu" if any("cpu" in each.devices for each in (*asked.kernels, *asked.operators)) else "cuda"
    assert main.main(["matrix", "--list", f"--matrix={matrix}", f"--device={device}"]) == DONE, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("folder", [each for each in FOLDERS if each.name != PREBUILT], ids=lambda each: each.name)
def test_a_report_can_be_checked_and_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\ncell " in checked_and_planned(folder / "matrix.yaml", capsys)


@pytest.mark.process
def test_the_one_that_is_built_first_is_built_as_its_comment_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "examples" / "regressions" / PREBUILT
    shutil.copytree(ROOT / "examples" / "regressions" / PREBUILT, folder, ignore=shutil.ignore_patterns("*.so"))
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    subprocess.run(["sh", "build.sh"], cwd=folder, check=True)
    assert "\ncell " in checked_and_planned(folder / "matrix.yaml", capsys)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: each.name)
def test_it_says_first_which_report_it_is_and_is_read_at_a_glance(folder: Path) -> None:
    lines = (folder / "matrix.yaml").read_text().splitlines()
    project, number = re.match(r"(?:([a-z]+)-)?(\d+)-", folder.name).groups()  # type: ignore[union-attr]
    assert re.match(rf"# {project or 'pytorch'} {number}, https://github\.com/.*/issues/{number}:", lines[0])
    assert len([line for line in lines if line.strip() and not line.lstrip().startswith("#")]) <= 15


def test_the_page_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "regressions.md").read_text()
    assert [folder.name for folder in FOLDERS if f"`{folder.name}`" not in page] == []
