"""The tasks `link` and `check` on a small real kernel, healthy and with each fault, and what `checkers` makes of it."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.checkers import cpu_results
from harness.schema.experiment_records import CheckerResult
from harness.worker import check, library, machine_code, protocol, tools, wire
from tests.conftest import ROOT
from tests.messages import asked

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on PATH"),
]
SOURCE = ROOT / "tests" / "candidates" / "small_attention.cpp"
FLAGS = ["-std=c++17", "-O1"]
TOOLS = ("address", "undefined_behaviour", "thread", "auto_var_init")


def compiled(folder: Path, *flags: str, source: Path = SOURCE) -> Path:
    target = folder / "kernel.o"
    command = ["g++", *FLAGS, *flags, "-fPIC", f"-I{ROOT / 'csrc'}", "-c", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def checked(folder: Path, *flags: str, **changes: Any) -> wire.CheckResult:
    workload = {"id": "w", "dtype": "float32", "batch": 2, "heads": 3, "seq_len": 37, "head_dim": 16, "causal": True}
    request = {
        "device": "cpu",
        "driver": str(ROOT / "csrc" / "probes" / "attention_call.cpp"),
        "sources": [str(SOURCE)],
        "objects": [str(compiled(folder, *flags))],
        "include_dirs": [str(ROOT / "csrc")],
        "flags": {"cxx": [*FLAGS, *flags]},
        "batch": 1,
        "heads": 2,
        "recipe": "independent",
        "trial": 0,
        "seed": 0,
        "workload": {**workload, "scale": 0.25, "recipes": {"independent": 1}},
        "threads": 2,
        "run_s": 250,
        **changes,
    }
    return check.check(asked("check", request))


@functools.cache
def results(folder: Path, *flags: str) -> dict[str, CheckerResult]:
    printed = checked(folder, *flags)
    assert printed.status == "ok"
    return {result.tool: result for result in cpu_results(printed, free_arithmetic=False)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("check")


def test_a_healthy_kernel_is_silent_and_every_control_is_found(folder: Path) -> None:
    found = results(folder)
    assert tuple(found) == TOOLS
    for result in found.values():
        assert result.status == "ok" and result.control_found and not result.findings, result
        assert result.control and "c++ -std=c++17" in result.command and "./" in result.command


@pytest.mark.parametrize(
    ("fault", "tool", "kind", "where"),
    [
        ("BEYOND", "address", "out_of_bounds", "attention_forward"),
        ("RACE", "thread", "race", "rows_of_head"),
        ("UNSET", "auto_var_init", "uninitialised", ""),
        ("OVERFLOW", "undefined_behaviour", "undefined_behaviour", "small_attention.cpp"),
    ],
)
def test_a_fault_is_found_by_its_tool_alone(folder: Path, fault: str, tool: str, kind: str, where: str) -> None:
    found = results(folder, f"-DFAULT_{fault}=1")
    assert found[tool].status == "wrong" and found[tool].control_found, found[tool]
    finding = found[tool].findings[0]
    assert finding.kind == kind and where in finding.where and str(ROOT) not in finding.where
    assert kind.replace("_", " ") in found[tool].message
    assert [name for name in TOOLS if found[name].findings] == [tool]


STRICT = {"cxx": [*FLAGS, "-Wsign-conversion", "-Werror"]}  # which neither the kernel nor the driver is free of


@pytest.mark.parametrize(
    ("flags", "changes", "status", "words"),
    [
        (["-DFAULT_OPENMP=1", "-fopenmp"], {}, "not_run", "OpenMP"),
        (["-DFAULT_REFUSES=1"], {}, "unsupported", "no such head_dim"),
        (["-DFAULT_CRASHES=1"], {}, "crashed", "before the call was done"),
        (["-DFAULT_HANGS=1"], {"run_s": 0.5}, "timed_out", ""),
        ([], {"flags": STRICT}, "ok", ""),
        ([], {"build": ["-fsanitize=nothing-of-the-kind"]}, "not_run", "nothing-of"),
    ],
    ids=["threads of OpenMP are not judged", "refused", "crashed", "hangs", "warnings of the driver", "no such tool"],
)
def test_a_call_that_was_not_made_is_not_silence(
    folder: Path, flags: list[str], changes: dict[str, Any], status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = changes.pop("build", check.CPU_BUILDS["thread"])
    monkeypatch.setattr(check, "CPU_BUILDS", {"thread": build})
    printed = checked(folder, *flags, **changes)
    result = next(r for r in cpu_results(printed, free_arithmetic=False) if r.tool == "thread")
    assert result.status == status and words in result.message, result
    assert bool(result.control_found) is (status == "ok") or status == "timed_out"


def test_an_executable_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    code, output = tools.attempt(["sh", "-c", "echo begun; sleep 600 & sleep 600"], 0.5)
    assert code is None and output in ("begun\n", ""), "a busy machine may not have begun by then"
    assert tools.attempt(["/nowhere/at/all"], 1)[0] == 127


def test_what_a_child_prints_is_kept_up_to_a_limit() -> None:
    code, output = tools.attempt([sys.executable, "-c", "print('x' * (1 << 20))"], 250)
    assert code == 0 and len(output) == tools.KEPT_BYTES


# -- link -----------------------------------------------------------------------------------------------------------


def linked(folder: Path, *paths: Path, objects: list[wire.ObjectRequest] | None = None) -> wire.Outcome:
    hashed = [wire.ObjectRequest(str(path), machine_code.hash_object(str(path))) for path in paths]
    try:
        return library.link(wire.LinkRequest(objects=objects or hashed, library=str(folder / "kernel.so"), cuda=False))
    except wire.Failed as error:
        return wire.Outcome(error.status, error.message, error.log_excerpt)


def test_objects_become_a_library_that_can_be_called_without_torch(tmp_path: Path) -> None:
    assert linked(tmp_path, compiled(tmp_path)) == wire.Outcome("ok")
    shared = ctypes.CDLL(str(tmp_path / "kernel.so"))
    shared.attention_error_string.restype = ctypes.c_char_p
    assert shared.attention_error_string(-3) == b"no such head_dim"


def test_an_object_that_was_changed_is_not_linked(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    objects = [wire.ObjectRequest(str(path), "0" * 64)]
    said = linked(tmp_path, objects=objects)
    assert said.status == "not_run" and "kernel.o is not there, or is not what" in said.message
    assert not (tmp_path / "kernel.so").exists()
    path.unlink()
    assert linked(tmp_path, objects=objects).status == "not_run"


TORCH = """
namespace at { struct Tensor; void add_(Tensor&); }
namespace c10 { int current_device(); }
extern "C" void Py_IncRef(void*);
void use(at::Tensor& x) { at::add_(x); c10::current_device(); Py_IncRef(nullptr); }
"""


def test_an_object_that_needs_pytorch_is_not_linked(tmp_path: Path) -> None:
    source = tmp_path / "torchy.cpp"
    source.write_text(TORCH)
    said = linked(tmp_path, compiled(tmp_path, source=source))
    assert said.status == "not_run" and "its objects need PyTorch: " in said.message
    assert "at::add_" in said.message and "Py_IncRef" in said.message


def test_objects_that_cannot_be_linked_say_why(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    again = shutil.copy(compiled(tmp_path), tmp_path / "other" / "kernel.o")
    said = linked(tmp_path, tmp_path / "kernel.o", Path(again))
    assert said.status == "build_failed" and "multiple definition" in said.log_excerpt


def test_without_nm_nothing_is_claimed_and_nothing_linked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = compiled(tmp_path)
    monkeypatch.setattr(tools, "undefined", lambda paths: None)
    with pytest.raises(wire.Failed, match="binutils") as raised:
        checked(folder)
    assert raised.value.status == linked(tmp_path, path).status == protocol.NOT_RUN


def test_names_of_torch_among_undefined_ones() -> None:
    names = ["cudaLaunchKernel", "GOMP_parallel", "std::thread::join()", "format::at(int)", "PyList_New", "c10::Error"]
    assert [name for name in names if library.NEEDS_TORCH.search(name)] == ["PyList_New", "c10::Error"]
