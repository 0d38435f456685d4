from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.cli.commands import _unnamed, _without_plumbing, main
from harness.config import indexes
from harness.config.interpreters import Interpreter
from harness.errors import exit_code
from harness.run import prepare


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No process, no connection, and the cache in a temporary folder."""
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(indexes, "probe_index", lambda index: "")
    monkeypatch.setattr(prepare, "host_facts", lambda: {"cpu": "test"})
    monkeypatch.setattr(prepare, "gpus", lambda: ())
    python = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=True)
    monkeypatch.setattr(prepare, "find_interpreter", lambda version: python)


def test_list_prints_the_plan_and_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in (root / "docker" / "pins").glob("*"))
    assert main(["matrix", "--list", f"--matrix={root / 'matrix.yaml'}"]) == 0
    printed = capsys.readouterr().out
    assert "cell     torch2.5.0-cu121-py311/attention_scalar/seed-fp16/cpu: 100 independent" in printed
    assert "launch     0 block 0" in printed
    assert sorted(path.name for path in (root / "docker" / "pins").glob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["matrix", "--launches=0"],
        ["matrix", "--device=tpu"],
        ["matrix", "--executor=podman"],
        ["matrix", "--executor=bundle"],
        ["matrix", "--executor=venv", "--bundle=somewhere"],
        ["matrix", "--bundle=nowhere"],
        ["matrix", "--fail-on=speed"],
        ["matrix", "--fail-on="],
        ["matrix", "--nonsense"],
        ["nonsense"],
        ["eval"],
        [],
    ],
)
def test_bad_options_exit_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 64
    assert "error:" in capsys.readouterr().err


def test_bad_input_exits_64_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", f"--matrix={tmp_path / 'none.yaml'}"]) == 64
    assert "none.yaml" in capsys.readouterr().err
    (tmp_path / "matrix.yaml").write_text("environments: 3\n")
    assert main(["matrix", f"--matrix={tmp_path / 'matrix.yaml'}"]) == 64
    error = capsys.readouterr().err
    assert "matrix.yaml: environments" in error and "remedy:" in error


def test_a_kernel_whose_source_is_missing_exits_64(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (root / "matrix.yaml").read_text().replace("csrc/attention_scalar_cpu.cpp", "csrc/none.cpp")
    (tmp_path / "matrix.yaml").write_text(text)
    assert main(["matrix", "--list", f"--matrix={tmp_path / 'matrix.yaml'}"]) == 64
    assert "no such file" in capsys.readouterr().err


def test_problems_without_solutions_exit_64(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--list", f"--matrix={root / 'matrix.yaml'}", "--problems=csrc"]) == 64
    assert "--problems and --solutions belong together" in capsys.readouterr().err


def test_a_folder_of_pairs_is_planned_like_kernels(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "probe_index", lambda index: "")
    (tmp_path / "matrix.yaml").write_text((root / "matrix.yaml").read_text())
    shutil.copytree(root / "tests" / "candidates" / "kernelbench", tmp_path / "bench")
    shutil.copytree(root / "csrc", tmp_path / "csrc")
    given = [f"--{name}={tmp_path / 'bench' / name}" for name in ("problems", "solutions")]
    assert main(["matrix", "--list", f"--matrix={tmp_path / 'matrix.yaml'}", "--device=cpu", *given]) == 0
    printed = capsys.readouterr().out
    assert "/level1.3_embedding/level1.3_embedding.3_Embedding/cpu: 5 independent" in printed
    assert "6 cells" in printed and "attention_scalar" not in printed


def test_strict_refuses_the_fallback_and_without_it_the_fallback_is_said(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "probe_index", lambda index: "" if "pypi" in index else f"{index} answered 403")
    matrix = f"--matrix={root / 'matrix.yaml'}"
    assert main(["matrix", "--list", "--strict", matrix]) == 30
    assert "--strict refuses the fallback" in capsys.readouterr().err
    assert main(["matrix", "--list", matrix]) == 0
    assert "fallback: torch2.5.0-pypi-py311" in capsys.readouterr().out


def test_the_first_code_of_the_order_wins() -> None:
    assert exit_code([]) == 0
    assert exit_code([11, 40, 10]) == 10
    assert exit_code([11, 20, 30]) == 30
    assert exit_code([64, 30]) == 64
    assert exit_code([40, 11]) == 11


def test_the_recorded_command_is_what_the_user_typed() -> None:
    words = ["--quick", "--run-path=/tmp/x", "--torch", "2.5.0", "--kernel", "a", "--run-path", "/tmp/y"]
    assert _without_plumbing(words) == ["--quick", "--kernel", "a"]


@pytest.mark.parametrize(
    ("given", "kept"), [("--bundle /a/b", "--bundle DIR"), ("--bundle=/a/b", "--bundle=DIR"), ("/a/bc", "/a/bc")]
)
def test_a_bundles_folder_is_not_recorded(given: str, kept: str) -> None:
    assert " ".join(_unnamed(word, Path("/a/b")) for word in given.split()) == kept
    assert " ".join(_unnamed(word, None) for word in given.split()) == given
