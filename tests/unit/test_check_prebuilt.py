"""What the check finds of libraries and wheels that are built already: in seconds, without an environment."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.config.environments import Environment
from harness.config.kernels import Kernel
from harness.preflight.findings import Findings
from harness.preflight.prebuilt import check_prebuilt
from tests.wheels import write_wheel

INTERFACE = """extern "C" int attention_forward() { return 0; }
extern "C" const char* attention_error_string(int) { return ""; }"""
ENVIRONMENTS = [Environment(torch=torch, cuda="12.1", python="3.11") for torch in ("2.1.0", "2.5.0")]
OLDER = Environment(torch="2.1.0", cuda="12.1", python="3.10")


def library(folder: Path, name: str, source: str) -> Kernel:
    (folder / "mine.cpp").write_text(source)
    subprocess.run(["c++", "-shared", "-fPIC", "mine.cpp", "-o", name], cwd=folder, check=True)
    return Kernel(name="mine", library=name)


def wheel(folder: Path, files: dict[str, str], entry: str = "mine.ops:attention", tag: str = "py3-none-any") -> Kernel:
    return Kernel(name="mine", wheel=write_wheel(folder, "mine", "1.0", files, tag).name, entry=entry)


def found(folder: Path, kernel: Kernel, *more: Environment) -> Findings:
    return check_prebuilt(kernel, folder / str(kernel.prebuilt), [*ENVIRONMENTS, *more])


def problem(folder: Path, kernel: Kernel) -> str:
    [each] = found(folder, kernel).problems
    return f"{each.what} -> {each.remedy}"


@pytest.mark.process
def test_libraries_that_can_be_called_pass(tmp_path: Path) -> None:
    for name, source in (
        ("libmine.so", INTERFACE),
        ("mine.cpython-311-x86_64-linux-gnu.so", 'extern "C" void* PyInit_mine() { return 0; }'),
    ):
        result = found(tmp_path, library(tmp_path, name, source))
        assert not result.problems and not result.unchecked and name in result.passed[0]


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("libmine.so", "int attention_forward() { return 0; }", "exports no attention_forward and no attention_error"),
        ("libmine.so", 'extern "C" int attention_forwards() { return 0; }', "did you mean attention_forwards"),
        ("libmine.so", 'extern "C" void* PyInit_mine() { return 0; }', "rename it to mine.so"),
        ("mine.cpython-310-x86_64-linux-gnu.so", 'extern "C" void* PyInit_mine() { return 0; }', "for Python 3.10"),
    ],
)
def test_libraries_that_no_environment_can_call_are_refused(tmp_path: Path, name: str, source: str, said: str) -> None:
    assert said in problem(tmp_path, library(tmp_path, name, source))


@pytest.mark.process
def test_what_fits_some_environments_is_a_result_and_is_said(tmp_path: Path) -> None:
    kernel = library(tmp_path, "mine.cpython-310-x86_64-linux-gnu.so", 'extern "C" void* PyInit_mine() { return 0; }')
    result = found(tmp_path, kernel, OLDER)
    assert not result.problems and "will not load in 2.1.0 on Python 3.11, 2.5.0 on Python 3.11" in result.unchecked[0]


@pytest.mark.process
def test_another_machine_s_code_is_refused(tmp_path: Path) -> None:
    kernel = library(tmp_path, "libmine.so", INTERFACE)
    data = bytearray((tmp_path / "libmine.so").read_bytes())
    data[0x12] = 183
    (tmp_path / "libmine.so").write_bytes(data)
    assert "is built for aarch64, and this machine is" in problem(tmp_path, kernel)
    (tmp_path / "libmine.so").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "is no ELF file" in problem(tmp_path, kernel)


OPS = {"mine/__init__.py": "", "mine/ops.py": "from torch import nn\ndef attention(q, k, v, causal, scale): ...\n"}


@pytest.mark.parametrize(
    ("files", "changes", "said"),
    [
        (OPS, {"entry": "mine.op:attention"}, "has no module mine.op, which entry"),
        (OPS, {"entry": "mine.ops:attend"}, "mine/ops.py defines no attend"),
        (OPS, {"tag": "cp310-cp310-linux_x86_64"}, "is built for cp310-cp310-linux_x86_64"),
        (OPS, {"tag": "cp311-cp311-win_amd64"}, "no environment has that"),
    ],
)
def test_wheels_that_no_environment_can_call_are_refused(
    tmp_path: Path, files: dict[str, str], changes: dict[str, str], said: str
) -> None:
    assert said in problem(tmp_path, wheel(tmp_path, files, **changes))


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (OPS["mine/ops.py"], "mine.ops:attention"),
        ("from ._C import attention", "mine.ops:attention"),
        ("from ._C import *", "mine.ops:attention"),
        ("class Ops:\n    attend = None", "mine.ops:Ops.attend"),
        ("attention = make()", "mine.ops:attention"),
        ("def attention(", "mine.ops:attention"),
    ],
)
def test_what_a_wheel_may_define_passes(tmp_path: Path, text: str, entry: str) -> None:
    assert not found(tmp_path, wheel(tmp_path, {"mine/ops.py": text}, entry)).problems


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    kernel = wheel(tmp_path, OPS)
    (tmp_path / str(kernel.wheel)).write_text("not a zip file")
    assert "cannot be read as a wheel" in problem(tmp_path, kernel)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"library": "mine.cpp"}, "no shared object"),
        ({"wheel": "mine-1.0-py3-none-any.whl"}, "wheel and entry belong together"),
        ({"library": "mine.so", "entry": "mine:f"}, "wheel and entry belong together"),
        ({"library": "mine.so", "sources": {"cpu": ["mine.cpp"]}}, "exactly one of"),
        ({"library": "mine.so", "tunables": {"BLOCK_M": 32}}, "tunables does nothing for mine.so"),
        ({"library": "../mine.so"}, "inside the folder"),
        ({"wheel": "mine.whl", "entry": "mine.ops"}, "should match pattern"),
    ],
)
def test_what_says_two_things_at_once_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Kernel(name="mine", **values)
