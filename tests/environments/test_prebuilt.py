"""Libraries and wheels that are built already, in both real versions: loaded, called, and told what they miss."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.environments.verbs import Environment
from tests.wheels import write_wheel

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]

CALLS_PYTORCH = """
#include <torch/csrc/utils/pybind.h>
#include <ATen/ATen.h>
at::Tensor forward(at::Tensor q, at::Tensor k, at::Tensor v, bool causal, double scale) {
    auto scores = at::matmul(q, k.transpose(-1, -2)) * scale;
    if (causal) {
        auto mask = at::ones({q.size(2), q.size(2)}, at::kBool).triu(1);
        scores = scores.masked_fill(mask, -INFINITY);
    }
    return at::matmul(at::softmax(scores, -1), v);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward);
    m.attr("RETURNS_OUTPUT") = true;
}
"""
NEW_STRINGS = """
#include <string>
namespace c10 { namespace detail {
[[noreturn]] void torchCheckFail(const char*, const char*, unsigned, const std::string&);
} }
extern "C" void* PyInit_mine() { c10::detail::torchCheckFail("", "", 0, std::string("x")); }
"""
OPS = """
import torch
def attention(q, k, v, causal, scale):
    scores = torch.matmul(q, k.transpose(-1, -2)) * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.matmul(torch.softmax(scores, -1), v)
"""
WORKLOAD = {
    "id": "w",
    "dtype": "float32",
    "batch": 1,
    "heads": 2,
    "seq_len": 33,
    "head_dim": 64,
    "causal": True,
    "scale": 0.125,
    "recipes": {"independent": 2},
}


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    path = folder / "source.cpp"
    path.write_text(source)
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", path, *flags, "-o", folder / name], check=True)
    return folder / name


def take(environment: Environment, file: Path, entry: str = "") -> dict[str, Any]:
    out = environment.folder / f"taken-{file.name}"
    shutil.rmtree(out, ignore_errors=True)
    return environment.result("take", {"file": str(file), "out": str(out), "load": True, "entry": entry})


def called(environment: Environment, taken: dict[str, Any], entry: str = "") -> dict[str, Any]:
    kernel = {"name": "mine", "device": "cpu", "prebuilt": taken["artifact"], "entry": entry}
    out = environment.folder / "out"
    request = {"kernel": kernel, "workload": WORKLOAD, "seed": 0, "threads": 1, "out": str(out)}
    return environment.result("candidate", request)


def test_a_library_with_the_c_interface_alone_runs_in_both(environments: list[Environment], tmp_path: Path) -> None:
    source = ROOT / "csrc" / "attention_scalar_cpu.cpp"
    file = compiled(tmp_path, "libmine.so", f'#include "{source}"\n', f"-I{ROOT / 'csrc'}", "-pthread")
    for environment in environments:
        taken = take(environment, file)
        assert taken["status"] == "ok", taken["message"]
        assert called(environment, taken)["status"] == "ok"


def test_an_extension_of_another_version_says_which_symbol(environments: list[Environment], tmp_path: Path) -> None:
    older, newer = environments[:2]
    built = older.build("mine", CALLS_PYTORCH, load=False)
    assert built["status"] == "ok", built["message"]
    file = Path(built["artifact"])
    taken = take(older, file)
    assert taken["status"] == "ok" and called(older, taken)["status"] == "ok", taken["message"]
    failed = take(newer, file)
    refused = failed["refused"]
    assert failed["status"] == "build_failed" and refused["kind"] == "symbol"
    assert "c10::optional" in refused["reason"] and "which PyTorch 2." in refused["reason"]
    assert refused["remedy"].startswith("rebuild it against PyTorch 2.")
    assert failed["message"].startswith("mine.so cannot be loaded: it needs at::")


def test_the_other_kind_of_strings_is_told_by_its_mark(environments: list[Environment], tmp_path: Path) -> None:
    file = compiled(tmp_path, "mine.so", NEW_STRINGS, "-D_GLIBCXX_USE_CXX11_ABI=1")
    refused = take(environments[0], file)["refused"]
    assert refused["kind"] == "cxx11_abi" and "rebuild it with -D_GLIBCXX_USE_CXX11_ABI=0" in refused["remedy"]
    assert "torchCheckFail" in refused["reason"]


@pytest.mark.parametrize(
    ("name", "source", "kind", "said"),
    [
        (
            "mine.so",
            'extern "C" void PyGen_Gone();\nextern "C" void* PyInit_mine() { PyGen_Gone(); return 0; }',
            "python",
            "it needs PyGen_Gone",
        ),
        (
            "mine.so",
            'extern "C" void cudaGone();\nextern "C" void* PyInit_mine() { cudaGone(); return 0; }',
            "symbol",
            "it needs cudaGone",
        ),
        (
            "mine.cpython-310-x86_64-linux-gnu.so",
            'extern "C" void* PyInit_mine() { return 0; }',
            "python",
            "built for Python 3.10",
        ),
        ("mine.so", "int nothing;", "interface", "neither PyInit_mine nor attention_forward"),
    ],
)
def test_what_the_loader_misses_is_named(
    environments: list[Environment], tmp_path: Path, name: str, source: str, kind: str, said: str
) -> None:
    taken = take(environments[0], compiled(tmp_path, name, source))
    assert taken["status"] == "build_failed" and taken["refused"]["kind"] == kind and said in taken["refused"]["reason"]


def test_a_library_that_is_not_there_is_named_with_the_one_that_is(
    environments: list[Environment], tmp_path: Path
) -> None:
    compiled(tmp_path, "libcudart.so.11.0", "int here;", "-Wl,-soname,libcudart.so.11.0")
    (tmp_path / "libcudart.so").symlink_to("libcudart.so.11.0")
    source = 'extern int here;\nextern "C" void* PyInit_mine() { return &here; }'
    file = compiled(tmp_path, "mine.so", source, f"-L{tmp_path}", "-lcudart")
    refused = take(environments[0], file)["refused"]
    assert (refused["kind"], refused["library"]) == ("library", "libcudart.so.11.0")
    assert "has libcudart.so.12" in refused["reason"]


def test_a_system_that_is_older_than_the_file_is_named(environments: list[Environment]) -> None:
    said = "/lib/libstdc++.so.6: version `GLIBCXX_3.4.99' not found (required by /x/mine.so)"
    script = "import sys; from worker import abi; print(abi.explain(sys.argv[1], '/x/mine.so'))"
    told = environments[0].script(script, said)
    assert "kind='system'" in told and "GLIBCXX_3.4.99, which this system's libstdc++.so.6 lacks" in told


def test_a_wheel_runs_in_both_from_its_entry_point(environments: list[Environment], tmp_path: Path) -> None:
    files = {"mine/__init__.py": "", "mine/ops.py": OPS, "mine/lost.py": "import not_there\n", "../outside.py": ""}
    file = write_wheel(tmp_path, "mine", "1.0", files)
    for environment in environments:
        taken = take(environment, file, "mine.ops:attention")
        assert taken["status"] == "ok", taken["message"]
        assert not Path(taken["artifact"]).with_name("outside.py").exists()
        assert called(environment, taken, "mine.ops:attention")["status"] == "ok"
        lacking = take(environment, file, "mine.lost:attention")["refused"]
        assert (lacking["kind"], lacking["library"]) == ("package", "not_there")
        assert take(environment, file, "mine.ops:nothing")["refused"]["kind"] == "other"
