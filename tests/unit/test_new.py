"""`kernel-matrix new`: what it writes passes the check and is right, and it overwrites nothing."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main, start
from harness.config.matrix import load_matrix
from harness.errors import BAD_INPUT, DONE
from harness.worker import tools
from tests.conftest import ROOT
from tests.unit.test_csrc import FP16, FP32, truth


@pytest.mark.parametrize(
    ("file", "written"),
    [
        ("mine.cu", ["mine.cu", "mine.yaml"]),
        ("kernels/My Kernel.cpp", ["kernels/My Kernel.cpp", "my_kernel.yaml"]),
        ("mine.py", ["mine_problem.py", "mine.py", "mine.yaml"]),
    ],
)
def test_it_writes_a_template_and_a_matrix_of_its_own(
    file: str, written: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "gpus", list)
    monkeypatch.chdir(tmp_path)
    assert main.main(["new", file]) == DONE
    said = capsys.readouterr().out.splitlines()
    assert said[: len(written)] == [f"wrote {name}" for name in written]
    where = "then, on a machine with a GPU (here is none): " if file.endswith(".cu") else ""
    assert said[-2:] == [
        f"next: kernel-matrix check --matrix {written[-1]}",
        f"      {where}kernel-matrix matrix --matrix {written[-1]} --quick",
    ]
    matrix, _ = load_matrix(tmp_path / written[-1])
    (kernel,) = matrix.kernels
    assert len(matrix.workloads) == (0 if file.endswith(".py") else 2)
    assert kernel.name == ("my_kernel" if " " in file else "mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main.main(["new", file]) == BAD_INPUT and "nothing was written" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("file", ["mine.txt", "../mine.cu", "/tmp/mine.cu"])
def test_what_it_cannot_write_is_refused(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["new", file]) == BAD_INPUT
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("file", ["mine.cpp", "mine.cu", "mine.py"])
def test_what_it_writes_passes_the_check(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert main.main(["new", file]) == DONE
    assert main.main(["check", "--matrix", "mine.yaml", "--executor=venv"]) == DONE
    assert ("not checked" in capsys.readouterr().out) <= (file == "mine.cu")


class Problem(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("batch", "heads", "seq_len", "head_dim", "dtype", "causal", "threads")),
        ("scale", ctypes.c_float),
    ]


@pytest.mark.process
def test_the_template_for_the_cpu_is_right(tmp_path: Path) -> None:
    (tmp_path / "mine.cpp").write_text(start.CPU)
    built = tmp_path / "mine.so"
    flags = ["-O1", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{ROOT / 'csrc'}"]
    subprocess.run([*tools.cxx(), *flags, str(tmp_path / "mine.cpp"), "-o", str(built)], check=True)
    library = ctypes.CDLL(str(built))
    library.attention_error_string.restype = ctypes.c_char_p
    generator = np.random.default_rng(0)
    for shape, causal in (((1, 2, 33, 16), 0), ((2, 1, 7, 64), 1), ((1, 1, 1, 8), 1)):
        q, k, v = (generator.standard_normal(shape, dtype=np.float32) for _ in range(3))
        out, scale = np.full(shape, np.nan, np.float32), shape[3] ** -0.5
        problem = Problem(*shape, FP32, causal, 1, scale)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (q, k, v, out)]
        assert library.attention_forward(ctypes.byref(problem), *pointers, None) == 0
        np.testing.assert_allclose(out, truth([q, k, v], FP32, bool(causal), scale).reshape(shape), atol=2e-6)
    problem.dtype = FP16
    code = library.attention_forward(ctypes.byref(problem), *pointers, None)
    assert code < 0 and b"float32" in library.attention_error_string(code)
