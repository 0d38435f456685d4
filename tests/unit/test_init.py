"""`kernel-matrix init`: what it finds, and that it overwrites nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness.cli import main, start
from harness.config.matrix import ATTENTION, parse_matrix
from harness.errors import BAD_INPUT, InputError
from tests.conftest import ROOT

C_ENTRY = "int attention_forward(const attention_problem* problem) { return 0; }\n"
BOUND = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n  m.def("forward", &forward);\n}\n'
PROBLEM = "class Model(nn.Module):\n    pass\n\ndef get_inputs():\n    return []\n"
SOLUTION = "class ModelNew(nn.Module):\n    pass\n"


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_one_kernel_is_a_line(tmp_path: Path) -> None:
    write(tmp_path, softmax_dot_cu=C_ENTRY)
    said = start.init(tmp_path)
    assert said == [
        "found softmax: softmax.cu",
        "wrote matrix.yaml",
        "wrote noxfile.py",
        "wrote reports/.gitignore",
        "next: kernel-matrix matrix --quick",
    ]
    lines = [line for line in (tmp_path / "matrix.yaml").read_text().splitlines() if not line.startswith("#")]
    assert lines[:2] == ["kernels:", "  - {name: softmax, sources: {cuda: [softmax.cu]}}"]
    matrix = parse_matrix((tmp_path / "matrix.yaml").read_text())
    assert [environment.torch for environment in matrix.environments] == ["2.1.0", "2.5.0"]
    assert matrix.baseline_environment.torch == "2.1.0" and [each.shape.seq_len for each in matrix.workloads] == [
        512,
        511,
    ]
    assert matrix.workloads[0] == ATTENTION, "what is taken where nothing is written"
    assert "/runs/" in (tmp_path / "reports" / ".gitignore").read_text().splitlines()
    compile((tmp_path / "noxfile.py").read_text(), "noxfile.py", "exec")


def test_what_it_finds(tmp_path: Path) -> None:
    write(
        tmp_path,
        a__Flash_dot_cu=C_ENTRY,
        a__Flash_cpu_dot_cpp=C_ENTRY,
        b__bound_dot_cpp=BOUND,
        c__gelu_dot_py=PROBLEM,
        d__gelu_new_dot_py=SOLUTION,
        e__util_dot_cpp="int f() { return 1; }\n",
        build__old_dot_cu=C_ENTRY,
        b__Flash_dot_cu=C_ENTRY,
    )
    write(tmp_path / ".hidden", k_dot_cu=C_ENTRY)
    (tmp_path / "env").mkdir()
    write(tmp_path / "env", pyvenv_dot_cfg="", lib__k_dot_cu=C_ENTRY)
    found = {kernel.name: kernel for kernel in start.find_kernels(tmp_path)}
    assert set(found) == {"flash", "flash_2", "bound", "gelu_new"}
    assert found["flash"].sources == {"cuda": "a/Flash.cu", "cpu": "a/Flash_cpu.cpp"}
    assert found["bound"].own and not found["flash"].own
    assert (found["gelu_new"].problem, found["gelu_new"].model_new) == ("c/gelu.py", "d/gelu_new.py")
    start.init(tmp_path)
    assert len(parse_matrix((tmp_path / "matrix.yaml").read_text()).kernels) == 4


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ('my {fast}: "kernel" #2.cu', "my_fast_kernel_2"),
        ("123.cu", "123"),
        ("null.cu", "null"),
        ("1e5.cu", "1e5"),
        ("-.cu", "kernel"),
        ("Größe\N{GRINNING FACE}.cu", "gr_e"),
        ("back\\slash's.cu", "back_slash_s"),
        (f"{'long' * 30}.cu", ("long" * 15)),
    ],
)
def test_a_name_that_yaml_would_read_otherwise_is_quoted(tmp_path: Path, name: str, called: str) -> None:
    (tmp_path / name).write_text(C_ENTRY)
    start.init(tmp_path)
    (kernel,) = parse_matrix((tmp_path / "matrix.yaml").read_text()).kernels
    assert kernel.sources is not None and kernel.sources.cuda == [name] and kernel.name == called


def test_a_file_that_cannot_be_named_read_or_looked_through_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, k_dot_cu=C_ENTRY, large_dot_cu=C_ENTRY + " " * start.MOST_BYTES)
    for name in (b"not-utf8-\xff.cu", b"two\nlines.cu"):
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_text(C_ENTRY)
    (tmp_path / "nowhere.cu").symlink_to(tmp_path / "none.cu")
    (tmp_path / "folder.cu").mkdir()
    assert [kernel.name for kernel in start.find_kernels(tmp_path)] == ["k"]


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    write(tmp_path, k_dot_cu=C_ENTRY, noxfile_dot_py="mine")
    write(tmp_path / "reports", _dot_gitignore="theirs")
    assert start.init(tmp_path)[-2:] == ["wrote matrix.yaml", "next: kernel-matrix matrix --quick"]
    assert (tmp_path / "reports" / ".gitignore").read_text() == "theirs"
    assert (tmp_path / "noxfile.py").read_text() == "mine"
    before = (tmp_path / "matrix.yaml").read_text()
    with pytest.raises(InputError, match="is there already"):
        start.init(tmp_path)
    assert (tmp_path / "matrix.yaml").read_text() == before
    (tmp_path / "matrix.yaml").unlink()
    (tmp_path / "matrix.yaml").symlink_to(tmp_path / "away.yaml")
    with pytest.raises(InputError, match="is there already"):
        start.init(tmp_path)
    assert not (tmp_path / "away.yaml").exists(), "a link that leads nowhere is somebody's too"


def test_without_a_kernel_it_says_what_it_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["init"]) == BAD_INPUT
    error = capsys.readouterr().err
    assert "attention_forward" in error and not list(tmp_path.iterdir())
    assert start.EXAMPLE in error and "README" not in error, "an installed wheel brings none"
    parse_matrix(start.EXAMPLE)


def test_pairs_of_a_problem_need_no_workloads(tmp_path: Path) -> None:
    write(tmp_path, gelu_dot_py=PROBLEM, gelu_new_dot_py=SOLUTION)
    start.init(tmp_path)
    assert "workloads" not in (tmp_path / "matrix.yaml").read_text()


def test_the_shipped_kernels_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("attention_scalar.cu", "attention_scalar_cpu.cpp"):
        shutil.copy(ROOT / "csrc" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert main.main(["init"]) == 0
    (kernel,) = parse_matrix((tmp_path / "matrix.yaml").read_text()).kernels
    assert kernel.sources is not None
    assert (kernel.sources.cpu, kernel.sources.cuda) == (["attention_scalar_cpu.cpp"], ["attention_scalar.cu"])
