"""`kernel-matrix check`: what cannot work is named with its place and the way out, and what may work is not refused."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main, matrix
from harness.config import indexes
from harness.config.interpreters import Interpreter
from harness.config.matrix import parse_matrix
from harness.errors import BAD_INPUT, DONE, InputError
from harness.preflight import Findings, preflight
from harness.preflight.memory import check_memory, shown
from harness.preflight.python_files import PROBLEM, SOLUTION, check_file
from harness.run import machine as this_machine
from harness.run import prepare
from harness.run.prepare import RunOptions
from harness.schema.records import Device
from harness.schema.run_records import Selection
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment, GPU or network."""
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(this_machine, "gpus", lambda: [])
    monkeypatch.setattr(this_machine, "host_facts", lambda: {"cpu": "test"})
    python = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=True)
    monkeypatch.setattr(this_machine, "find_interpreter", lambda version: python)
    monkeypatch.setattr(indexes, "probe_index", lambda index: "")
    monkeypatch.setattr(preflight, "check_interpreters", lambda *given: Findings())
    monkeypatch.setattr(preflight, "check_packages", lambda *given: Findings())  # tests/unit/test_requirements.py


def looked(folder: Path, yaml: str, files: Mapping[str, str], **selected: Any) -> Findings:
    folder = folder / "project"
    for name, text in {"matrix.yaml": yaml, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    options = RunOptions(matrix_path=folder / "matrix.yaml", command=("test",), executor="venv")
    return preflight.preflight(options, prepare.draft_plan(options, Selection(**selected)))


def only(found: Findings) -> tuple[str, str, str]:
    (problem,) = found.problems
    return problem.where, problem.what, problem.remedy


def test_the_kernels_of_this_repository_pass(tmp_path: Path) -> None:
    options = RunOptions(matrix_path=ROOT / "matrix.yaml", command=("test",), executor="venv")
    assert preflight.preflight(options, prepare.draft_plan(options, Selection())).problems == []


def test_files_that_are_not_there_are_all_named_with_their_line_in_the_yaml(tmp_path: Path) -> None:
    yaml = """\
kernels:
  - name: k
    sources:
      cpu:
        - mine/atention.cpp
  - {name: p, problem: problem.py, model_new: solution.py}
"""
    found = looked(tmp_path, yaml, {"mine/attention.cpp": "", "problem.py": "", "README": ""})
    file = tmp_path / "project" / "matrix.yaml"
    first, second, *_ = [(each.where, each.what, each.remedy) for each in found.problems]
    assert first == (
        f"{file}:5",
        "mine/atention.cpp: no such file",
        "did you mean attention.cpp? correct the path in matrix.yaml",
    )
    assert second[:2] == (f"{file}:6", "solution.py: no such file")


# -- problem files and solutions --------------------------------------------------------------------------------

MODEL = """\
import torch
import numpy as np, math
class Model(torch.nn.Module): pass
def get_inputs(): return []
get_init_inputs = lambda: []
"""


def of_file(folder: Path, text: str, wanted: tuple[str, ...] = PROBLEM, python: tuple[int, int] = (3, 8)) -> Findings:
    path = folder / "file.py"
    path.write_text(text)
    return check_file(path, "file.py", wanted, lambda: {python})


@pytest.mark.parametrize(
    ("text", "wanted", "where", "what", "remedy"),
    [
        (MODEL.replace("Model(torch.nn.Module)", "Model(torch.nn.Module"), PROBLEM, "file.py:3", "SyntaxError", ""),
        (MODEL + "return 1\n", PROBLEM, "file.py:6", "SyntaxError: 'return' outside function", "correct the line"),
        (MODEL.replace("get_inputs", "get_input"), PROBLEM, "file.py:4", "no get_inputs", "mean get_input? "),
        (MODEL, SOLUTION, "file.py:3", "defines no ModelNew", "add `class ModelNew(torch.nn.Module)`"),
        ("import torch\nclass ModelNeu: pass\n", SOLUTION, "file.py:2", "defines no ModelNew", "mean ModelNeu?"),
    ],
)
def test_a_mistake_in_a_python_file_is_found_without_running_it(
    text: str, wanted: tuple[str, ...], where: str, what: str, remedy: str, tmp_path: Path
) -> None:
    seen = only(of_file(tmp_path, text, wanted))
    assert seen[0] == where and what in seen[1] and remedy in seen[2], seen


@pytest.mark.parametrize(
    "text",
    [
        MODEL,
        "raise SystemExit  # it is not run\n" + MODEL,
        "from torch import *\n",
        "globals()['Model'] = 1\n",
        "if True:\n    class Model: pass\nelse:\n    Model = None\nfor get_inputs in (): pass\n"
        "from torch import nn as get_init_inputs\n",
        "text = '\\d'\n" + MODEL,
    ],
)
def test_a_python_file_that_may_work_is_not_refused(text: str, tmp_path: Path) -> None:
    assert of_file(tmp_path, text).problems == []


def test_syntax_that_a_newer_python_may_know_is_not_refused(tmp_path: Path) -> None:
    found = of_file(tmp_path, "def f( -> 1\n", python=(3, 99))
    assert found.problems == [] and "newer Python" in found.unchecked[0]


# -- memory -----------------------------------------------------------------------------------------------------

GIB = 1 << 30
LARGE = """\
kernels: [{name: k, sources: {cpu: [k.cpp], cuda: [k.cu]}}]
workloads:
  - name: small
    shape: {batch: 1, heads: 8, seq_len: 512, head_dim: 64}
    dtypes: {cpu: [float32]}
  - name: large
    shape: {batch: 1, heads: 8, seq_len: 1000000, head_dim: 64}
    dtypes: {cpu: [float32], cuda: [float16]}
"""


@pytest.mark.parametrize(
    ("machine_gib", "gpu_gib", "said"),
    [
        (23, 0, []),
        (12, 80, ["in float32 on cpu needs at least 15.3 GiB, and this machine has 12 GiB"]),
        (23, 3, ["in float16 on cuda needs at least 3.81 GiB, and its GPU has 3 GiB"]),
        (12, 3, ["in float32 on cpu", "in float16 on cuda"]),
    ],
)
def test_a_shape_that_cannot_fit_is_refused_with_the_numbers(machine_gib: int, gpu_gib: int, said: list[str]) -> None:
    used: dict[str, set[Device]] = {"small": {"cpu"}, "large": {"cpu", "cuda"}}
    has: dict[Device, int] = {"cpu": machine_gib * GIB, "cuda": gpu_gib * GIB}
    found = check_memory(parse_matrix(LARGE), LARGE, Path("matrix.yaml"), used, has)
    assert len(found.problems) == len(said)
    for problem, words in zip(found.problems, said, strict=True):
        assert problem.where == "matrix.yaml:7" and words in problem.what and problem.remedy == "take a smaller shape"


def test_sizes_are_shown_in_units_for_people() -> None:
    assert [shown(size) for size in (5, 3 * 1024, 256 * 10**12)] == ["5 B", "3 KiB", "233 TiB"]


# -- the command ------------------------------------------------------------------------------------------------

MISTAKES = """\
kernels:
  - {name: lacking, sources: {cpu: [k.cpp]}}
  - {name: pair, problem: problem.py, model_new: solution.py}
"""


def test_everything_is_told_at_once_and_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "matrix.yaml": MISTAKES,
        "problem.py": MODEL,
        "solution.py": "class Model(:\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matrix, "run_matrix", lambda *_: pytest.fail("something was started"))
    for words in (["check"], ["matrix", "--quick"], ["eval", "--torch=2.5.0"], ["gate", "--make", "--quick"]):
        assert main.main([*words, "--executor=venv"]) == BAD_INPUT
        said = capsys.readouterr().err
        assert "2 problems" in said and "\n    -> " in said
        for place in ("matrix.yaml:2: k.cpp: no such file", "solution.py:1: SyntaxError"):
            assert place in said
        assert ("Nothing was started" in said) == (words[0] != "check")
    monkeypatch.setattr(matrix, "run_matrix", lambda *_: (argparse.Namespace(folder="FOLDER"), []))
    assert main.main(["matrix", "--no-check", "--no-report", "--executor=venv"]) == DONE


def test_a_solution_of_many_that_cannot_work_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"matrix.yaml": MISTAKES, "problems/1_a.py": MODEL, "solutions/1_a.py": "import torch\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matrix, "run_matrix", lambda *_: (argparse.Namespace(folder="FOLDER"), []))
    words = ["kernelbench", "problems", "solutions", "--no-report", "--executor=venv"]
    assert main.main(words) == DONE
    assert "solutions/1_a.py:1: defines no ModelNew" in capsys.readouterr().out


def test_one_problem_is_told_in_one_line(tmp_path: Path) -> None:
    found = of_file(tmp_path, MODEL, SOLUTION)
    refusal = found.refusal(Path())
    assert isinstance(refusal, InputError) and refusal.message == "file.py:3: defines no ModelNew"
    assert Findings().refusal(Path()) is None
